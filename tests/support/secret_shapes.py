# ruff: noqa: E501 - a text is a line
"""Texts with secrets, in which these are marked: `password=⟦hunter22⟧`; and texts without any, which stay as they are.

One table for all that takes secrets out of texts. A shape is a notation: what is added here is one that a program,
a server or a person writes. The values are made up.
"""

from __future__ import annotations

# Made of parts, so that no scanner of repositories takes one for a real key.
JWT = "eyJhbGciOiJIUzI1NiJ9" + "." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0" + "." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
AWS_ID, AWS_SECRET = "AKIA" + "IOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG" + "/bPxRfiCYEXAMPLEKEY"
HEX32 = "0123456789abcdef" * 2
ALNUM = "Zq9x" * 6

SECRET: dict[str, list[str]] = {
    "properties and parameters": [
        "password=⟦hunter22⟧",
        "password = ⟦hunter22⟧",
        "password=⟦hunter22⟧ user=me",
        "host=db user=me password=⟦hunter22⟧",
        "host=db password='⟦hunter 22⟧' user=me",
        'host=db password="⟦hunter 22⟧" user=me',
        "host=db password=`⟦hunter 22⟧` user=me",
        "fs.s3a.secret.key=⟦hunter22⟧",
        "fs.s3a.secret.key = ⟦hunter22⟧\nfs.s3a.endpoint = http://s3:9000",
        "spark.hadoop.fs.s3a.access.key=⟦hunter22⟧",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net=⟦hunter22==⟧",
        "javax.net.ssl.trustStorePassword=⟦changeit1⟧",
        "-Djavax.net.ssl.keyStorePassword=⟦changeit1⟧ -Dx=y",
        "s3.secret-access-key -> ⟦hunter22⟧, user -> u",
        ":password => '⟦hunter22⟧', :user => 'u'",
        "password := ⟦hunter22⟧",
        "DB_PASSWORD=⟦hunter22⟧",
        "export DB_PASSWORD=⟦hunter22⟧",
        "export DBPASS='⟦hunter22⟧'",
        "PGPASS=⟦hunter22⟧",
        "SMTPPASS=⟦hunter22⟧",
        '$env:API_TOKEN = "⟦hunter22⟧"',
        "set API_KEY=⟦hunter22⟧",
        "GET /x?apiKey=⟦hunter22⟧&y=1",
        "GET /x?a=1&access_token=⟦hunter22⟧&y=1 HTTP/1.1",
        "POST /token client_id=me&client_secret=⟦hunter22⟧&grant_type=client_credentials",
        "https://h/#access_token=⟦hunter22⟧",
        "webhdfs://h/f?op=OPEN&delegation=⟦HAAEZXRsAA⟧&offset=0",
        "GET /webhdfs/v1/f?delegation=⟦HAAEZXRsAA⟧",
        "https://lake.blob.core.windows.net/c/f?sv=2022&sr=b&sig=⟦hunter22%2B%3D⟧&se=2026",
        "https://b.s3.amazonaws.com/f?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=⟦abc123def⟧",
        "https://b.s3.amazonaws.com/f?X-Amz-Security-Token=⟦IQoJb3JpZ2luX2VjE⟧&x=1",
        "https://storage.googleapis.com/b/o?X-Goog-Signature=⟦abc123def⟧",
        "https://h/f?Expires=1&Signature=⟦hunter22⟧&Key-Pair-Id=K",
        "AccountName=lake;AccountKey=⟦hunter22==⟧;EndpointSuffix=core.windows.net",
        "Endpoint=sb://x/;SharedAccessKeyName=⟦Root⟧;SharedAccessKey=⟦hunter22=⟧",
        "Driver={ODBC Driver 18};Server=h;Uid=me;Pwd=⟦hunter22⟧;Encrypt=yes",
        "Driver={X};Uid=u;Pwd={⟦hunt;er22⟧};A=b",
        "Server=h;User ID=me;Password=⟦hunter22⟧;Database=x",
        'Data Source=h;User Id=me;Password="⟦hunt;er22⟧";',
        "jdbc:postgresql://db/x?user=me&password=⟦hunter22⟧",
        "jdbc:sqlserver://h:1433;user=me;password=⟦hunter22⟧;encrypt=true",
        "jdbc:snowflake://acc.snowflakecomputing.com/?user=me&password=⟦hunter22⟧&db=X",
        "jdbc:snowflake://acc.snowflakecomputing.com/?user=me&token=⟦hunter22⟧",
        "jdbc:db2://h:1/db:user=me;password=⟦hunter22⟧;",
        "jdbc:mysql://h/db?user=me&password=⟦hunter22⟧&useSSL=false",
        "jdbc:hive2://h:10000/default;user=me;password=⟦hunter22⟧",
        "jdbc:databricks://h:443;AuthMech=3;UID=token;PWD=⟦hunter22⟧",
        "jdbc:redshift:iam://c:eu/db?AccessKeyID=⟦AK12345678⟧&SecretAccessKey=⟦hunter22⟧",
        "jdbc:oracle:thin:scott/⟦hunter22⟧@//h:1521/x",
        'jdbc:oracle:thin:scott/"⟦hunt@er22⟧"@h',
        'org.x.PlainLoginModule required username="u" password="⟦hunter22⟧";',
        "ScramLoginModule required username='u' password='⟦hunt;er22⟧';",
        "connect(host=h, password='⟦hunter 22⟧', user=u)",
        "connect(host='h', password=b'⟦hunter22⟧')",
        "Config(user='me', token='⟦hunter22⟧', retries=3)",
        "Options(password=u'⟦hunter22⟧')",
        "password='''⟦hunt'er\n22⟧'''",
        'password = """⟦hunter\n22⟧"""',
        'conf["password"] = "⟦hunter22⟧"',
        "os.environ['DB_PASSWORD'] = '⟦hunter22⟧'",
        "config['db']['password'] = '⟦hunter22⟧'",
        "opts='a=b password=⟦hunter22⟧'",
        "cannot open x?token=⟦hunter22⟧: refused",
        "client_assertion=⟦hunter22hunter22⟧&x=1",
    ],
    "documents": [
        '{"password": "⟦hunter22⟧", "user": "me"}',
        '{"password":"⟦hunter22⟧"}',
        "{'password': '⟦hunter22⟧', 'user': 'me'}",
        "{'password': b'⟦hunter22⟧'}",
        "{'password' : u'⟦hunter22⟧'}",
        '{"password": "⟦hun\\"ter22⟧", "user": "me"}',
        r'{"password": "⟦hun\\ter22⟧", "user": "me"}',
        r"{'password': '⟦hun\'ter22⟧', 'user': 'me'}",
        "{'password': \"⟦hun'ter22⟧\", 'user': 'me'}",
        r"{\"password\": \"⟦hunter22⟧\", \"user\": \"me\"}",
        r"{\\\"password\\\": \\\"⟦hunter22⟧\\\", \\\"user\\\": 1}",
        r'"{\"client_secret\":\"⟦hunter22⟧\",\"x\":1}"',
        '{"password": 12345678}'.replace("12345678", "⟦12345678⟧"),
        '{"s3.secret-access-key": "⟦hunter22⟧", "s3.region": "eu"}',
        '{"auth": {"password": "⟦hunter22⟧"}}',
        '{"tokens": ["⟦hunter22⟧", "⟦hunter23⟧"], "a": ["b"]}',
        "{'passwords': ['⟦hunter22⟧', '⟦hunter23⟧']}",
        "tokens=['⟦hunter22⟧', '⟦hunter23⟧']",
        "passwords: [⟦hunter22⟧, ⟦hunter23⟧]",
        '{"credentials": {"user": "me", "x": "⟦hunter22⟧"}}',
        '{"name": "password", "value": "⟦hunter22⟧"}',
        '{"name":"DB_PASSWORD","value":"⟦hunter22⟧"}',
        "{'name': 'fs.s3a.secret.key', 'value': '⟦hunter22⟧'}",
        '{"key": "password", "value": "⟦hunter22⟧"}',
        '{"Key": "token", "Value": "⟦hunter22⟧"}',
        '{"value": "⟦hunter22⟧", "name": "password"}',
        '{"header": "X-Api-Key", "value": "⟦hunter22⟧"}',
        "- name: DB_PASSWORD\n  value: ⟦hunter22⟧\n- name: X\n  value: y",
        '- name: DB_PASSWORD\n  value: "⟦hunter22⟧"',
        "[{name=password, value=⟦hunter22⟧}, {name=x, value=y}]",
        "name=password, value=⟦hunter22⟧",
        "('password', '⟦hunter22⟧')",
        "[('user', 'me'), ('password', '⟦hunter22⟧')]",
        '["password", "⟦hunter22⟧"]',
        "(b'authorization', b'Bearer ⟦hunter22⟧')",
        "('X-Api-Key', '⟦hunter22⟧')",
        "user: me\npassword: ⟦hunter22⟧\n",
        "user: me\npassword: '⟦hunter 22⟧'\n",
        'user: me\npassword: "⟦hunter 22⟧"\n',
        "db:\n  password: ⟦correct horse battery⟧\n  user: me",
        "db:\n  password: ⟦swordfish⟧\n  user: me",
        "password: |\n  ⟦hunter22⟧\nuser: me",
        "db:\n  password: >-\n    ⟦hunter22\n    hunter23⟧\n  user: me",
        "token: |-\n  ⟦hunter22⟧\n",
        "- password: ⟦hunter22⟧",
        "password:\n  ⟦hunter22⟧\nuser: me",
        "password: !vault ⟦hunter22⟧",
        "password: &pw ⟦hunter22⟧",
        "{user: me, password: ⟦swordfish⟧, x: y}",
        'password = "⟦hunter22⟧" # of the lake',
        "[db]\npassword = ⟦hunter22⟧\nuser = me",
        "[db]\npassword: ⟦hunter22⟧",
        "password: ⟦hunter22⟧ # of the lake",
        '{\n  "api_key" : "⟦hunter22⟧"\n}',
        "{'Authorization': 'Bearer ⟦hunter22⟧'}",
        '{"headers": {"x-api-key": "⟦hunter22⟧"}}',
        '{"Cookie": "⟦a=b; hunter22⟧"}',
        '"access_token":"⟦hunter22⟧","expires_in":3600',
        '{"type": "service_account", "private_key": "⟦-----BEGIN PRIVATE KEY-----\\nMIIabc\\n-----END PRIVATE KEY-----\\n⟧", "x": 1}',
        '{"private_key_id": "⟦0123abc⟧", "client_email": "me@p.iam.gserviceaccount.com"}',
        '{"aws_secret_access_key": "⟦hunter22⟧", "a": true}',
        "Map(password -> ⟦hunter22⟧, user -> u)",
        'Some(password -> "⟦hunter22⟧")',
        "password: “⟦hunter 22⟧”",
        "**Password:** ⟦hunter22⟧",
        "user,password\nme,⟦hunter22⟧\nyou,⟦hunter23⟧",
        "id|token|name\n1|⟦hunter22⟧|a",
        "| user | password |\n| --- | --- |\n| me | ⟦hunter22⟧ |",
        "user\tpassword\nme\t⟦hunter22⟧",
        '"id","password"\n"1","⟦hunter22⟧"',
    ],
    "headers": [
        "X-Api-Key: ⟦hunter22⟧",
        "X-Api-Key:⟦hunter22⟧",
        "x-api-key: ⟦swordfish⟧",
        "GET / HTTP/1.1\r\nHost: h\r\nX-Api-Key: ⟦hunter22⟧\r\nAccept: */*",
        "Authorization: Bearer ⟦hunter22⟧",
        "Authorization: Basic ⟦bWU6aHVudGVyMjI=⟧",
        "Authorization: Token ⟦hunter22⟧",
        "Authorization: ApiKey ⟦hunter22⟧",
        "Authorization: Negotiate ⟦YIIabc123==⟧",
        "Authorization: NTLM ⟦TlRMTVNTUAAB⟧",
        "Authorization: ⟦hunter22⟧",
        "Authorization: Custom ⟦hunter22⟧",
        'Authorization: Digest ⟦username="me", realm="r", nonce="n", response="abc123"⟧',
        "Authorization: AWS4-HMAC-SHA256 ⟦Credential=AKIDEXAMPLE/2026/eu/s3/aws4_request, SignedHeaders=host, Signature=abc123⟧",
        "Authorization: SharedKey ⟦lake:hunter22=⟧",
        'Authorization: Token ⟦token="hunter22"⟧',
        'Authorization: OAuth ⟦oauth_token="abc", oauth_signature="x1y2z3"⟧',
        "Proxy-Authorization: Basic ⟦bWU6aHVudGVyMjI=⟧",
        "authorization: bearer ⟦hunter22⟧\nhost: h",
        "-H 'Authorization: Bearer ⟦hunter22⟧' https://h/x",
        'curl -H "Authorization: Bearer ⟦hunter22⟧" https://h/x',
        "curl -H 'X-Api-Key: ⟦hunter22⟧' https://h/x",
        "Cookie: ⟦sid=hunter22; theme=dark⟧",
        "Cookie: ⟦hunter22⟧\nHost: h",
        "Set-Cookie: ⟦session=hunter22; Path=/; HttpOnly⟧",
        "set-cookie: ⟦JSESSIONID=A1B2C3⟧\r\ncontent-type: text/html",
        "b'GET / HTTP/1.1\\r\\nAuthorization: Basic ⟦bWU6aHVudGVyMjI=⟧\\r\\nHost: h'",
        "b'GET / HTTP/1.1\\r\\nX-Api-Key: ⟦hunter22⟧\\r\\nHost: h'",
        "X-Vault-Token: ⟦hunter22⟧",
        "X-Amz-Security-Token: ⟦IQoJb3JpZ2luX2VjE⟧",
        "x-ms-encryption-key: ⟦hunter22⟧",
        "Ocp-Apim-Subscription-Key: ⟦hunter22⟧",
        "PRIVATE-TOKEN: ⟦hunter22⟧",
        "X-Auth-Token: ⟦hunter22⟧",
        "X-CSRF-Token: ⟦hunter22⟧",
        "DD-API-KEY: ⟦hunter22⟧",
        "> Authorization: Bearer ⟦hunter22⟧",
        "request headers: Authorization: Bearer ⟦hunter22⟧",
        "it said: bearer ⟦hunter22hunter22⟧",
        "sent Basic ⟦bWU6aHVudGVyMjI=⟧ to h",
        "sent AWS4-HMAC-SHA256 ⟦Credential=AKIDEXAMPLE/2026/eu/s3/aws4_request, SignedHeaders=host, Signature=abc123⟧",
    ],
    "addresses": [
        "postgresql://me:⟦hunter22⟧@db/x",
        "postgresql+psycopg2://me:⟦hunter22⟧@db:5432/x?a=b",
        "mysql://me:⟦hunt/er22⟧@db/x",
        "mysql://me:⟦hunt#er22⟧@db/x",
        "mysql://me:⟦hunt?er22⟧@db/x",
        "mysql://me:⟦hunt@er22⟧@db/x",
        "mysql://me:⟦h@unt#er22⟧@db/x",
        "mysql://me:⟦hunt@er/22⟧@db/x",
        "mysql://me:⟦hunt%40er22⟧@db/x",
        "mysql://me:⟦hunt%2Fer22⟧@db/x",
        "mysql://me%40corp:⟦hunter22⟧@db/x",
        "mysql://me%3A⟦hunter22⟧@db/x",
        "redis://:⟦hunter22⟧@h:6379/0",
        "rediss://default:⟦hunter22⟧@h:6379/0",
        "mongodb://me:⟦hunter22⟧@h1:27017,h2:27017/db",
        "mongodb+srv://me:⟦hunter22⟧@c.mongodb.net/db",
        "amqp://me:⟦hunter22⟧@h:5672/%2F",
        "ldap://cn=admin:⟦hunter22⟧@h:389",
        "ftp://me:⟦hunter22⟧@h/f",
        "sftp://me:⟦hunter22⟧@h:22/f",
        "ssh://me:⟦hunter22⟧@h:22",
        "git clone https://me:⟦hunter22⟧@github.com/x/y.git",
        "https://⟦hunter22hunter22⟧@github.com/x/y.git",
        "http://me:⟦hunter22⟧@proxy:3128",
        "http_proxy=http://me:⟦hunter22⟧@proxy:3128/",
        "cannot connect to 'http://me:⟦hunter22⟧@proxy:3128': refused",
        '{"proxy": "http://me:⟦hunter22⟧@proxy:3128"}',
        "http://me@corp:⟦hunter22⟧@proxy:3128",
        "thrift://me:⟦hunter22⟧@h1:9083,thrift://me:⟦hunter23⟧@h2:9083",
        "s3://me:⟦hunter22⟧@bucket/x",
        "wss://me:⟦hunter22⟧@h/x",
        "jdbc:postgresql://me:⟦hunter22⟧@db/x",
        "snowflake://me:⟦hunter22⟧@acc/db",
        "//me:⟦hunter22⟧@h/x",
        "url=postgresql%3A%2F%2Fme%3A⟦hunter22⟧%40db%2Fx",
        "callback?u=https%3A%2F%2Fme%3A⟦hunter22⟧%40h",
        "https:\\/\\/me:⟦hunter22⟧@h\\/x",
        "http://me:⟦a⟧@h/x",
        "kafka://me:⟦p$w!d⟧@h:9092",
        "http://me:⟦hunter22⟧@[::1]:80/x",
        '<a href="http://me:⟦hunter22⟧@h/x">',
        "http://me:⟦hunter22⟧@example.com/a?mail=b@c.d",
        "http://me:⟦hunter22⟧@example.com/user@home",
        "https://hooks.slack.com/services/⟦T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX⟧",
        "https://discord.com/api/webhooks/⟦123456/abc-DEF_1⟧",
        "https://contoso.webhook.office.com/webhookb2/⟦abc@def/IncomingWebhook/123/456⟧",
    ],
    "elements": [
        "<password>⟦hunter22⟧</password>",
        "<db:password>⟦hunter22⟧</db:password>",
        '<Password type="x">⟦hunter22⟧</Password>',
        "<password><![CDATA[⟦hunter22⟧]]></password>",
        "<secret>\n  ⟦hunter22⟧\n</secret>",
        "<SessionToken>⟦hunter22⟧</SessionToken>",
        '<db user="me" password="⟦hunter22⟧"/>',
        "<db user='me' password='⟦hunter22⟧'/>",
        "<property><name>fs.s3a.secret.key</name><value>⟦hunter22⟧</value></property>",
        "<property>\n  <name>fs.s3a.secret.key</name>\n  <value>⟦hunter22⟧</value>\n</property>",
        "<property>\n <name>javax.jdo.option.ConnectionPassword</name>\n <value>⟦hunter22⟧</value>\n <description>x</description>\n</property>",
        '<property name="password" value="⟦hunter22⟧"/>',
        '<add key="Password" value="⟦hunter22⟧"/>',
        '<entry key="password">⟦hunter22⟧</entry>',
        '<string name="api_key">⟦hunter22⟧</string>',
        "<param name='token' value='⟦hunter22⟧'>",
        '<input type="hidden" name="csrf_token" value="⟦hunter22⟧">',
        "&lt;password&gt;⟦hunter22⟧&lt;/password&gt;",
        "password=&quot;⟦hunter22⟧&quot;",
        "{&quot;password&quot;: &quot;⟦hunter22⟧&quot;, &quot;a&quot;: 1}",
        "password&#61;⟦hunter22⟧",
        "password&#x3D;⟦hunter22⟧",
        "{&#34;password&#34;:&#34;⟦hunter22⟧&#34;}",
        "{&#39;password&#39;: &#39;⟦hunter22⟧&#39;}",
        "user=me&amp;password=⟦hunter22⟧&amp;x=1",
        r"{\u0022password\u0022:\u0022⟦hunter22⟧\u0022}",
        r"password\u003d⟦hunter22⟧",
        r"password\x3d⟦hunter22⟧",
        r"{\x22password\x22: \x22⟦hunter22⟧\x22}",
        "password%3D⟦hunter22⟧",
        "a%3D1%26password%3D⟦hunter22⟧%26b%3D2",
        "%7B%22password%22%3A%22⟦hunter22⟧%22%7D",
        "password%253D⟦hunter22⟧",
        "http://me:⟦hunter22⟧&#64;h/x",
    ],
    "command lines": [
        "--password ⟦hunter22⟧",
        "--password=⟦hunter22⟧",
        "--password '⟦hunter 22⟧'",
        "--db-password ⟦swordfish⟧ --user me",
        "-password ⟦hunter22⟧",
        "--token ⟦hunter22⟧ run",
        "spark-submit --conf spark.x.password=⟦hunter22⟧ --name x",
        "['spark-submit', '--password', '⟦hunter22⟧', '--name', 'x']",
        '["--password", "⟦hunter22⟧"]',
        '["--api-key", "⟦hunter22⟧", "--x"]',
        '["--password=⟦hunter22⟧"]',
        "command: --secret-key ⟦hunter22⟧",
        "mysql -u me -p⟦hunter22⟧ db",
        "mysqldump -h h -ume -p⟦hunter22⟧ db",
        "sshpass -p ⟦hunter22⟧ ssh h",
        "docker login -u me -p ⟦hunter22⟧ r.io",
        "redis-cli -h h -a ⟦hunter22⟧ ping",
        "ldapsearch -D cn=x -w ⟦hunter22⟧ -b dc=y",
        "sqlcmd -S h -U me -P ⟦hunter22⟧",
        "keytool -list -storepass ⟦changeit1⟧",
        "beeline -u jdbc:hive2://h -n me -p ⟦hunter22⟧",
        "curl -u me:⟦hunter22⟧ https://h",
        "curl --user me:⟦hunter22⟧ https://h",
        "smbclient //h/s -U me%⟦hunter22⟧",
        "sqlplus scott/⟦hunter22⟧@orcl",
        "machine h login me password ⟦hunter22⟧",
        "ENV API_TOKEN=⟦hunter22⟧",
        "az storage blob list --account-key ⟦hunter22==⟧",
        '--sas-token "⟦sv=2022&sig=abc⟧"',
        "aws configure set aws_secret_access_key=⟦hunter22⟧",
    ],
    "SQL": [
        "CREATE USER me IDENTIFIED BY '⟦hunter22⟧'",
        'ALTER USER me IDENTIFIED BY "⟦hunter22⟧"',
        "CREATE USER me WITH PASSWORD '⟦hunter22⟧'",
        "ALTER ROLE me PASSWORD '⟦hunter22⟧'",
        "ALTER ROLE me ENCRYPTED PASSWORD '⟦hunter22⟧'",
        "CREATE USER MAPPING FOR me SERVER s OPTIONS (user 'me', password '⟦hunter22⟧')",
        "OPTIONS ('password' = '⟦hunter22⟧', 'user' = 'me')",
        "OPTIONS (password '⟦hunter22⟧', url 'jdbc:x')",
        "CREATE SECRET s (TYPE s3, KEY_ID '⟦AK123456⟧', SECRET '⟦hunter22⟧')",
        "CREATE SECRET (TYPE s3, SECRET '⟦hunter22⟧', REGION 'eu')",
        "COPY t FROM 's3://b' CREDENTIALS 'aws_secret_access_key=⟦hunter22⟧;x=1'",
        "COPY INTO t CREDENTIALS=(AWS_KEY_ID='x' AWS_SECRET_KEY='⟦hunter22⟧')",
        "SET s3_secret_access_key='⟦hunter22⟧'",
        "TBLPROPERTIES ('x.password'='⟦hunter22⟧', 'y'='z')",
        "SET PASSWORD = '⟦hunter22⟧'",
        "select * from s3('u', aws_secret_access_key => '⟦hunter22⟧')",
        "WITH (api_key = '⟦hunter22⟧')",
        "aws_secret_access_key '⟦hunter22⟧'",
    ],
    "prose": [
        "the password is ⟦hunter22⟧",
        "password: ⟦hunter22⟧ is wrong",
        "login failed with password: ⟦hunter22⟧",
        "login failed, password ⟦hunter22⟧ is wrong",
        "wrong password '⟦hunter 22⟧' for user me",
        "ERROR cannot log in with password: ⟦hunter22⟧, user: me",
        "Secret access key: ⟦hunter22⟧",
        "api key: ⟦hunter22⟧",
        "API key ⟦hunter22⟧ was refused",
        "access key: ⟦hunter22⟧",
        "client secret: ⟦hunter22⟧",
        "account key = ⟦hunter22==⟧",
        "connection string: ⟦hunter22⟧",
        "the token is ⟦hunter22⟧",
        "token: ⟦hunter22⟧",
        "invalid token: ⟦abc123DEF456⟧",
        "bad credentials: ⟦me:hunter22⟧",
        "my password: ⟦swordfish⟧",
        "2026-01-01 00:00:00 ERROR password: ⟦hunter22⟧",
        "Caused by: x.Y: password=⟦hunter22⟧",
        "passphrase: ⟦hunter22⟧",
        "pwd: ⟦hunter22⟧",
    ],
    "lines and calls": [
        "spark.hadoop.fs.s3a.secret.key    ⟦hunter22⟧",
        "a 1\njavax.jdo.option.ConnectionPassword ⟦hunter22⟧\nb 2",
        "password|⟦hunter22⟧",
        '"password","⟦hunter22⟧"',
        'ds.setPassword("⟦hunter22⟧")',
        "spark.read.option('x', 'y').withPassword('⟦hunter22⟧')",
        '.option("password", "⟦hunter22⟧")',
        '<password value="⟦hunter22⟧"/>',
        '{"property": "password", "newValue": "⟦hunter22⟧"}',
        "me:⟦hunter22⟧@db:5432/x",
        "p%61ssword=⟦hunter22⟧",
        "password for me: ⟦hunter22⟧",
        "the password of user me is ⟦hunter22⟧",
        "the password was '⟦hunter22⟧'",
        'password set to "⟦hunter22⟧"',
        "(spark.hadoop.fs.s3a.secret.key,⟦hunter22⟧)",
        "Spark properties used:\n  (spark.authenticate.secret,⟦swordfish⟧)\n  (spark.app.name,x)",
        "Array((spark.a,b), (spark.x.password,⟦hunter22⟧))",
        "List(password, ⟦hunter22⟧)",
        "| password | ⟦hunter22⟧ |",
        "| key | value |\n| --- | --- |\n| DB_PASSWORD | ⟦hunter22⟧ |\n| user | me |",
        "│ password │ ⟦hunter22⟧ │ of the lake │",
        "spark.hadoop.fs.s3a.secret.key  ⟦0123456789abcdef0123456789abcdef⟧",
        "spark.x.password  ⟦12345678⟧",
        "<tr><td>spark.x.password</td><td>⟦hunter22⟧</td></tr>",
        "<key>password</key>\n<string>⟦hunter22⟧</string>",
        "<dt>api_key</dt> <dd>⟦hunter22⟧</dd>",
        "password=⟦(paren)7q⟧ user=me",
        "password=⟦{b}99x⟧",
        "password=⟦[b]99x⟧",
        '    password: str = "⟦hunter22⟧"',
        "def f(user: str, token: str | None = '⟦hunter22⟧') -> None:",
        'val password: String = "⟦hunter22⟧"',
        "\x1b[36mpassword\x1b[0m=⟦\x1b[35mhunter22\x1b[0m⟧ \x1b[36muser\x1b[0m=me",
        "OPTIONS (s3.secret-access-key '⟦hunter22⟧')",
        "OPTIONS (apiKey '⟦hunter22⟧', url 'https://h')",
        "creds=⟦hunter22⟧",
    ],
    "tokens": [
        f"⟦{JWT}⟧",
        f"cannot use ⟦{JWT}⟧, expired",
        "⟦" + "ghp_" + ALNUM + "⟧",
        "pushed with ⟦" + "gho_" + ALNUM + "⟧ to x",
        "⟦" + "ghs_" + ALNUM + "⟧",
        "⟦" + "github_pat_" + ALNUM + "⟧",
        "⟦" + "glpat-" + ALNUM + "⟧",
        "⟦" + "xoxb-" + "123456789012-abcDEF⟧",
        "⟦" + "xoxp-" + "123456789012-abcDEF⟧",
        "⟦" + "xoxa-" + "123456789012-abcDEF⟧",
        "⟦" + "xapp-" + "1-A123-456-abc⟧",
        "⟦" + "AIza" + "SyA1234567890abcdefghijklmnopqrstuv⟧",
        "⟦" + "ya29." + "a0AfH6SMBx-y_z⟧",
        "⟦" + "dapi" + HEX32 + "⟧",
        "⟦" + "sk_live_" + ALNUM + "⟧",
        "⟦" + "rk_live_" + ALNUM + "⟧",
        "⟦" + "whsec_" + ALNUM + "⟧",
        "⟦" + "sk-" + ALNUM + "⟧",
        "⟦" + "sk-ant-" + ALNUM + "⟧",
        "⟦" + "sk-proj-" + ALNUM + "⟧",
        "⟦" + "npm_" + ALNUM + "⟧",
        "⟦" + "pypi-" + "AgEIcHlwaS5vcmc" + ALNUM + "⟧",
        "⟦" + "SG." + ALNUM + "." + ALNUM + "⟧",
        "⟦" + "hvs." + ALNUM + "⟧",
        "⟦" + "hf_" + ALNUM + "⟧",
        "⟦" + "dckr_pat_" + ALNUM + "⟧",
        "⟦" + "shpat_" + HEX32 + "⟧",
        "⟦" + "dop_v1_" + HEX32 + "⟧",
        "⟦" + "GOCSPX-" + "abcDEF-123456⟧",
        f"⟦{AWS_ID}⟧",
        f"⟦{AWS_ID}⟧:⟦{AWS_SECRET}⟧",
        f"⟦{AWS_ID}⟧ ⟦{AWS_SECRET}⟧",
        f"keys ⟦{AWS_ID}⟧,⟦{AWS_SECRET}⟧ of x",
        f"⟦{AWS_ID.replace('AKIA', 'ASIA')}⟧\n⟦{AWS_SECRET}⟧",
        "a ⟦-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n\nhunter-22==\n-----END RSA PRIVATE KEY-----⟧ b",
        "⟦-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----⟧",
        "⟦-----BEGIN EC PRIVATE KEY-----\\nMHcC\\n-----END EC PRIVATE KEY-----⟧",
        "⟦-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF⟧",
        "⟦-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOY\n-----END PGP PRIVATE KEY BLOCK-----⟧",
        "https://api.telegram.org/bot⟦123456789:AAabcdefghijklmnopqrstuvwxyz0123456⟧/sendMessage",
        "Endpoint=x;SharedAccessSignature=⟦sv=1&sig=hunter22⟧;X=1",
        "https://chat.googleapis.com/v1/spaces/AAA/messages?⟦key=a&token=b⟧",
    ],
}


def _lines(text: str) -> list[str]:
    """Return the lines of a text; a sign for a line break, and one for a tab, stand in them for their own."""
    return [line.replace("⏎", "\n").replace("⇥", "\t") for line in text.strip("\n").split("\n")]


HARMLESS: dict[str, list[str]] = {
    "sentences about secrets": _lines(r"""
(password, token)
no map index of the task has write_key 'file 1' any more
sort_key 'b', partition_key "2026-01-01"
(token, count)
call(token, arg0)
(s.tokens, 3051729675574597004)
(spark.hadoop.fs.s3a.aws.credentials.provider,org.x.InstanceProfile)
(spark.authenticate.secret,*********(redacted))
| user | password | token |
| token | string | the token of the user |
| password_hash | varchar(60) |
s.tokens 3051729675574597004
<td>password</td><td>string</td>
<th>token</th><th>created_at</th>
password: str = ""
password: str = password
token: str | None = None
secrets=[a, b]
tokens={}
password must not be empty
the password must not be empty
password: must not be empty
password: required
password: expected a text
password is required
password is not set
the password is wrong
the password was changed
wrong password for user me
invalid password
no password given
password authentication failed for user "me"
FATAL: password authentication failed for user "postgres"
Login failed for user 'sa'
Access denied for user 'me'@'10.0.0.1' (using password: YES)
Access denied for user 'me'@'localhost' (using password: NO)
token count: 5
token: missing
token: expected a text
cannot read the token: expected a text
the token has expired
the token is not valid
token expired at 2026-01-01T00:00:00Z
unexpected token: SELECT
unexpected token 'SELECT' at line 1
Unexpected token < in JSON at position 0
mismatched input 'from' expecting {<EOF>, ';'}
extraneous token ')' in the query
Syntax error at or near token "where"
no viable alternative at input 'select'
the secret "lake" does not exist
secrets "lake" is forbidden
secret: not found
credentials: none found
Unable to locate credentials
no credentials were found in the environment
Basic auth is required
basic statistics of the bearer authentication
bearer token is missing
Bearer authentication is required
Authorization: required
Authorization failed for user me
authorization: denied
Authorization header is missing
Cookie: not set
the cookie is too old
the signature is invalid
signature: (int, int) -> str
API key not found
api key is missing
the access key does not exist
The AWS Access Key Id you provided does not exist in our records.
SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided
InvalidAccessKeyId
ExpiredToken: The provided token has expired.
set the password as a property of the connection
set password in the connection's extra
use --password to set it
the option --token must be given
--password PASSWORD  the password of the user
--password <password>
--token TOKEN
usage: x [--password PASSWORD] [--token TOKEN] file
enter a password: at least 8 characters
password too short: at least 8 characters
password must have 8 characters or more
key not found: id
primary key: id
partition key: day
sort key: id, ts
the key: id
unknown key 'x'
author: Jane Doe
authors: Jane, John
Authentication: failed
authentication type: basic
auth: none
auth type: kerberos
token type: bearer
authority: login.microsoftonline.com
the pass of 3 files
3 passed, 1 failed
bypass: on
compass: north
passenger count: 3
design: new
sigma: 3
tokenizer: standard
the secretary: Jane
"""),
    "placeholders": _lines(r"""
password=***
password: ***
{"password": "***"}
password=${DB_PASSWORD}
password=$DB_PASSWORD
password: ${DB_PASSWORD}
password=%(password)s
password=%s
password={password}
password=<password>
password: <password>
password={{ conn.lake.password }}
password=[REDACTED]
password=xxxxxx
password=?
where password = :password
{"password": null}
{'password': None, 'user': 'me'}
password=None
password=null
token=true
token: false
password=''
password=""
http://me:***@h/x
https://***@h/x
{"password": ""}
<password></password>
<password/>
password=
password:
token=
--password ***
"""),
    "code": _lines(r"""
    return connect(user=user, password=password)
    client = Client(token=self._token, retries=3)
    auth = self._auth
    password=os.environ["DB_PASSWORD"]
    password = os.environ.get("DB_PASSWORD")
    password=settings.password,
    token=token,
    token = get_token()
    secret=config.secret)
    credential = DefaultAzureCredential()
    File "/a/b/auth.py", line 3, in get_token
    File "/usr/lib/python3.11/site-packages/requests/auth.py", line 12, in __call__
⇥at org.apache.hadoop.security.token.Token.decodeIdentifier(Token.java:190)
⇥at org.apache.spark.sql.Dataset.collect(Dataset.scala:3120)
⇥at com.amazonaws.auth.AWSCredentialsProviderChain.getCredentials(AWSCredentialsProviderChain.java:136)
Caused by: java.io.IOException: No FileSystem for scheme: s3
java.lang.NullPointerException: Cannot invoke "String.length()" because "token" is null
KeyError: 'password'
KeyError: 'token'
AttributeError: 'Client' object has no attribute 'password'
TypeError: connect() missing 1 required positional argument: 'password'
TypeError: connect() got an unexpected keyword argument 'token'
def connect(user: str, password: str) -> Client:
def login(self, token: str | None = None) -> None:
x: int, token: Optional[str]
import secrets
from google.auth import credentials
assert token == "x"
if auth == x, when token==
org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider
fs.s3a.aws.credentials.provider=org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider
spark.kubernetes.authenticate.submission.oauthTokenFile=/var/run/secrets/token
spark.kubernetes.driver.secrets.of-the-lake=/etc/secrets
token-refresh-enabled=true
s3.session-token-expires-at-ms=1700000000000
oauth2-server-uri=https://idp/oauth/tokens
rest.auth.type=basic
io.auth:token-lib:1.0,com.x:secret:2
kafka-token-service:9092,token-b:9092
db-password:key
PWD=/home/me/work
OLDPWD=/home/me
"""),
    "SQL": _lines(r"""
select password_hash from users
select id, password_hash, token_count from s.users where password_hash is not null
select password from users
select u.password, u.token from users u where u.id = 1
select * from users where password is null
select * from a join b on a.token = b.token
select count(token) from t
select count(distinct token) as tokens from t group by token
where token = other.token
where token in (select token from t)
alter table t add column password string
alter table t drop column token
create table t (id bigint, password string, token varchar(20))
create table t (id long, api_key string)
create user me
grant select on t to role auth_users
column password_hash not found
column 'password' does not exist
no such column: password
unknown column 'token' in s.users, expected one of id, name
cannot resolve 'password' given input columns: [id, name]
column password: expected string, got int
struct<id: long, password: string, token: optional<string>>
1: id: required long, 2: password: optional string
password string
token: text
password: varchar(20)
token: decimal(10, 2)
secret: binary
id long, password string, token uuid
['id', 'password', 'email']
('id', 'password')
["user", "password", "token"]
order by token desc
partitioned by (bucket(16, token))
bucket(16, token)
truncate(4, api_key)
{"id": 3, "name": "password", "required": false, "type": "string"}
{"id": 4, "name": "token", "type": "long"}
{"name": "api_key", "type": ["null", "string"], "default": null}
partition key: value of day=2026-01-01
day=2026-01-01/country=de
{'day': '2026-01-01', 'country': 'de'}
{"sort_key": "id"}
key: value
a: b, c: d
key=1/value=2
primary_key=id
identifier fields: id, key
the column key: expected int, got string
user,password
id,name
1,a
2,b
"""),
    "places": _lines(r"""
s3://bucket/warehouse/sales.db/orders/metadata/00001-0b0f1b2c-aaaa-bbbb-cccc-0123456789ab.metadata.json
/opt/airflow/logs/dag_id=x/run_id=manual__2026-01-01T00:00:00+00:00/task_id=append/attempt=1.log
file:///tmp/wh/s/t/data/00000-1-abc.parquet
hdfs://nn:8020/data@2026
hdfs://nn:8020/a:b@c
abfss://container@lake.dfs.core.windows.net/x
abfs://raw@company.dfs.core.windows.net/sales
https://host:443/x?a=b@c
https://host:8080/@scope/package
https://registry.example.com/@scope/package/-/package-1.0.0.tgz
https://medium.com/@author/post-1
http://host:8080/user@example.com/x
thrift://a:9083,thrift://b:9083
jdbc:postgresql://db:5432/x
jdbc:oracle:thin:@//h:1521/x
jdbc:oracle:thin:/@alias
git@github.com:owner/repo.git
ssh://git@github.com/owner/repo.git
me@example.com
mail to me@example.com, you@example.org
Jane Doe <jane.doe@example.com>
user:me@example.com
[::1]:8080
10.0.0.1:5432
localhost:8080
file:///tmp/a:b@c
arn:aws:iam::123456789012:role/lake
arn:aws:s3:::bucket/x
projects/p/locations/eu/keyRings/r/cryptoKeys/k
https://login.microsoftonline.com/tenant/oauth2/v2.0/token
https://sts.amazonaws.com/?Action=AssumeRole
https://host/path?query=a&page=2#section
https://github.com/owner/repo/pull/5#discussion_r123
/var/run/secrets/kubernetes.io/serviceaccount/token
/etc/passwd
/home/me/.ssh/id_rsa.pub
C:\Users\me\file.txt
docs/security.md#secrets
spark://master:7077
k8s://https://host:6443
yarn application_1700000000000_0001
redis://h:6379/0
postgresql://me@db/x
ldap://h:389/dc=x
s3a://bucket/a%20b/c%3Dd
s3://bucket/day%3D2026-01-01/x.parquet
docker.io/library/postgres:16@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
"""),
    "ids and times": _lines(r"""
0b0f1b2c-aaaa-bbbb-cccc-0123456789ab
3051729675574597004
snapshot 3051729675574597004 is not an ancestor of 3051729675574597005
snapshot-id: 3051729675574597004
sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
digest 0123456789abcdef0123456789abcdef01234567
commit c30f04b9
commit 0123456789abcdef0123456789abcdef01234567
etag: "0123456789abcdef0123456789abcdef"
md5 d41d8cd98f00b204e9800998ecf8427e
checksum=d41d8cd98f00b204e9800998ecf8427e
x-amz-request-id: 0A1B2C3D4E5F6071
x-amz-id-2: abc/def+ghi=
request id 0A1B2C3D4E5F6071
2026-01-01T00:00:00Z
2026-01-01 00:00:00.000000 UTC
manual__2026-01-01T00:00:00+00:00
scheduled__2026-01-01T00:00:00+00:00
application_1700000000000_0001
container_e01_1700000000000_0001_01_000001
spark-0123456789abcdef-driver
pod spark-8f3a0123-driver in namespace jobs
attempt=1 max_tries=3
version 1.2.3
v1.2.3-rc1
pip install 'airflow-iceberg[s3]>=1.0'
airflow==3.1.0
exit code 137
errno 28
0x7f3a0123
00000-1-0b0f1b2c-aaaa-bbbb-cccc-0123456789ab-00001.parquet
application/json; charset=utf-8
Content-Type: application/json
Content-Length: 1234
Accept: */*
User-Agent: python-requests/2.31
Host: localhost:8080
x-iceberg-access-delegation: vended-credentials
X-Iceberg-Access-Delegation: vended-credentials
WWW-Authenticate: Basic realm="lake"
WWW-Authenticate: Negotiate
Location: https://host/x
ETag: W/"abc"
HTTP/1.1 401 Unauthorized
GET /v1/config?warehouse=lake HTTP/1.1
PUT /bucket/key?uploadId=7
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
tokens=128
max_tokens=4096
token.ms=1
password.min.length=8
keys: 5
max-keys=1000
s3.sse-kms-key-id=arn:aws:kms:eu:1:key/0b0f1b2c-aaaa-bbbb-cccc-0123456789ab
encryption.key-id=keyA
<name>x</name><value>y</value>
<xml><a>b</a></xml>
<Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message>
&lt;a&gt; &amp; b
a\u0041b
100% of 5
50%25
ExitCode: 1 (Error)
Exception in thread "main" java.lang.OutOfMemoryError: Java heap space
Application application_1_0001 failed 1 times due to AM Container exited with exitCode: 13
0/3 nodes are available: 3 Insufficient memory.
Back-off pulling image "spark:3.5.0"
MountVolume.SetUp failed for volume "creds" : secret "lake" not found
Container spark-kubernetes-driver: OOMKilled
UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:15002
[TABLE_OR_VIEW_NOT_FOUND] The table or view `s`.`t` cannot be found.
[PARSE_SYNTAX_ERROR] Syntax error at or near 'from'.
"""),
}
