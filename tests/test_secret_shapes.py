"""The notations of secrets: a table of texts, what is left of each, and texts that stay as they are.

Beyond the table, the product of its parts: names, signs between, values, and what is around them.
"""

import html
import json
import re
import time
from collections.abc import Iterator
from itertools import product
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.redaction import hide, said, secrets_of, shown_command, without_secrets
from tests.support.secret_shapes import HARMLESS, SECRET

MARKED = re.compile("⟦(.*?)⟧", re.DOTALL)
SHAPES = [text for texts in SECRET.values() for text in texts]
PLAIN = [text for texts in HARMLESS.values() for text in texts]


def written(marked: str) -> str:
    return marked.replace("⟦", "").replace("⟧", "")


class TestTheTable:
    """A secret vanishes and the rest can be read; what is none stays."""

    def test_it_is_large_and_names_no_text_twice(self) -> None:
        assert len(SHAPES) >= 250
        assert len(PLAIN) >= 250
        assert len(set(SHAPES)) == len(SHAPES)
        assert all(MARKED.search(text) for text in SHAPES)

    def test_of_a_message_only_the_secret_is_taken_out(self) -> None:
        found = {text: without_secrets(written(text)) for text in SHAPES}
        assert {text: told for text, told in found.items() if told != MARKED.sub("***", text)} == {}

    def test_what_was_taken_out_stays_so(self) -> None:
        once = [without_secrets(written(text)) for text in SHAPES]
        assert [text for text in once if without_secrets(text) != text] == []

    def test_harmless_texts_stay_as_they_are(self) -> None:
        found = {text: without_secrets(text) for text in PLAIN}
        assert {text: told for text, told in found.items() if told != text} == {}

    def test_forms_and_fields_use_the_same_table(self) -> None:
        wrong = []
        for text in SHAPES:
            shown = hide("x.options", written(text))
            if shown not in (MARKED.sub("***", text), "***") or not secrets_of({"x.options": written(text)}):
                wrong.append((text, shown))
        assert wrong == []
        found = {text: hide("x.options", text) for text in PLAIN}
        assert {text: shown for text, shown in found.items() if shown != text} == {}

    def test_errors_use_it_too(self) -> None:
        assert [text for text in SHAPES if str(IcebergError(f"cannot do x: {written(text)}")) == written(text)] == []
        assert str(InvalidInputError("cannot log in with password=hunter22")) == "cannot log in with password=***"
        assert repr(InvalidInputError("password=hunter22")) == "InvalidInputError('password=***')"

    def test_in_the_middle_of_other_texts(self) -> None:
        wrong = []
        for text in SHAPES:
            secret = max(MARKED.findall(text), key=len)
            for before, after in (("the server said:\n", "\nand more"), ("line one\n\n", "\n\n")):
                # A table of values ends with its lines, and a block with its indentation.
                if len(secret) > 3 and secret in without_secrets(before + written(text) + after):
                    wrong.append((before, text))
        assert wrong == []


NAMES = (
    *(
        "password",
        "db.password",
        "DB_PASSWORD",
        "s3.secret-access-key",
        "fs.s3a.secret.key",
        "X-Api-Key",
        "client_secret",
    ),
    *("access_token", "sasToken", "fs.azure.account.key.lake.dfs.core.windows.net", "ugi", "passphrase", "AccountKey"),
)
VALUES = ("hunter22", "Hunt-er_22", "h+nt/er22=", "c0rrect.h0rse", "Zq9" * 20, "hünter22")
QUOTED_VALUES = (*VALUES, "hunt er 22", "hunt;er&22", "hunt,er 22", "hunt: er22", "hunt{er}22", "hunt<er>22")


def quoted_forms(name: str, value: str) -> Iterator[str]:
    yield json.dumps({"user": "me", name: value})
    yield json.dumps({"a": [{"name": name, "value": value}]})
    yield json.dumps(json.dumps({name: value}))
    yield json.dumps({"x": json.dumps({"y": json.dumps({name: value})})})
    yield repr({name: value, "user": "me"})
    yield repr([(name, value), ("user", "me")])
    yield repr({name: value.encode()}) if value.isascii() else repr({name: value})
    yield f'{name} = "{value}"'
    yield f"{name}='{value}'"
    yield f"user: me\n{name}: '{value}'\nx: y"
    yield f"{name}: |\n  {value}\nx: y"
    yield f"OPTIONS ('{name}' = '{value}', 'a' = 'b')"
    yield f"<{name}>{html.escape(value)}</{name}>"
    yield f"<property><name>{name}</name><value>{html.escape(value)}</value></property>"
    yield f'<x {name}="{html.escape(value)}" y="z"/>'
    yield html.escape(json.dumps({name: value}))
    yield quote(json.dumps({name: value}, ensure_ascii=False))
    yield repr(["--" + name, value])
    yield f"--{name} '{value}' --x"
    yield f'Config({name.replace("-", "_").replace(".", "_")}="{value}")'


def bare_forms(name: str, value: str) -> Iterator[str]:
    yield f"{name}={value}"
    yield f"user=me {name}={value} x=y"
    yield f"https://h/x?a=b&{name}={quote(value)}&c=d"
    yield f"jdbc:x://h/db;user=me;{name}={value};a=b"
    yield f"{name} -> {value}, x -> y"
    yield f"{name}: {value}\nx: y"
    yield f"--{name} {value} --x y"
    yield f"--{name}={value}"
    yield f"-D{name}={value} -Dx=y"
    yield f"cannot log in: {name}={value}: refused"
    yield f"the {name} is {value}" if name in ("password", "passphrase") else f"{name}={value}"


class TestTheProduct:
    """Each name in each notation with each value."""

    def test_of_each_notation(self) -> None:
        self.check(quoted_forms, list(zip(NAMES, QUOTED_VALUES, strict=False))[::3])
        self.check(bare_forms, list(zip(NAMES, VALUES, strict=False)))

    @pytest.mark.costly
    def test_of_quoted_values(self) -> None:
        self.check(quoted_forms, product(NAMES, QUOTED_VALUES))

    @pytest.mark.costly
    def test_of_bare_values(self) -> None:
        self.check(bare_forms, product(NAMES, VALUES))

    @staticmethod
    def check(forms, pairs) -> None:
        left = []
        for name, value in pairs:
            for text in forms(name, value):
                for told in (without_secrets(text), str(hide("x", text))):
                    if any(each in told for each in {value, quote(value), html.escape(value), json.dumps(value)[1:-1]}):
                        left.append((text, told))
        assert left[:20] == []

    def test_of_logins(self) -> None:
        left = []
        for scheme, user, host in product(
            ("postgresql", "https", "s3a", "mongodb+srv"), ("me", "me%40corp", ""), ("db/x", "db.example.com:5432", "h")
        ):
            for password in (
                "hunter22",
                "hunt/er22",
                "hunt@er22",
                "hunt#er22",
                "h@u/nt#er22",
                "hunt?er22",
                "hunt:er22",
            ):
                for text in (
                    f"{scheme}://{user}:{password}@{host}",
                    f"{scheme}://{user}:{quote(password, safe='')}@{host}",
                ):
                    for told in (
                        without_secrets(text),
                        without_secrets(quote(text, safe="")),
                        without_secrets(f"('{text}',)"),
                    ):
                        if "er22" in told:
                            left.append((text, told))
        assert left[:20] == []

    @pytest.mark.costly
    @given(
        st.sampled_from(NAMES),
        st.from_regex(r"[A-Za-z0-9+/=_.~!%^*-]{3}[A-Za-z][0-9][A-Za-z0-9]{4,20}", fullmatch=True),
        st.integers(0, 19),
        st.sampled_from(["", "x ", "at h: ", "\n", "{'a': 1}\n"]),
    )
    def test_of_any_value(self, name: str, value: str, number: int, before: str) -> None:
        for forms in (quoted_forms, bare_forms):
            texts = list(forms(name, value))
            assert value not in without_secrets(before + texts[number % len(texts)])


class TestLists:
    """The arguments of a command as a list."""

    def test_the_argument_after_an_option_is_its_value(self) -> None:
        command = ["x", "--db-password", "hunter22", "--token", "--y", "z", "-p", "1"]
        assert shown_command(command) == "x --db-password *** --token --y z -p 1"
        assert hide("argv", command) == ["x", "--db-password", "***", "--token", "--y", "z", "-p", "1"]
        assert hide("uri", "webhdfs://h/f?delegation=HAAE1234&x=1") == "webhdfs://h/f?delegation=***&x=1"
        assert hide("delegation", "HAAE1234") == "***"


class TestWhatOthersSay:
    """`said` cuts a text after its secrets were looked for."""

    def test_a_secret_at_the_cut_is_none_left(self) -> None:
        for length in range(20, 60):
            assert "hunt" not in said(f"cannot connect to postgresql://me:{'hunter22' * 4}@db/x", length)
        assert said("x" * 50, 20) == "x" * 20
        assert said(ValueError("password=hunter22")) == "password=***"


STEPS = {
    *("secret", "auth-", "://:", "a:", "bearer ", "bearer a", "pwd={", 'pwd="', "pwd='x", 'password=\\"', "x=", "a="),
    *("auth-url=https://", "auth-type='", "token.ms=1 ", ",a", "a.", "-----BEGIN PRIVATE KEY-----", "-a", "<", "<a "),
    *(
        "jdbc:oracle:thin:a/b",
        "<password>",
        "@",
        "//a:@x",
        "//a:",
        "name=password ",
        "value=1 name=password",
        "[password, ",
    ),
    *(
        "('password', ",
        "--password ",
        "--",
        "\n",
        "a,password,b\n",
        "\\u0022",
        "%253D",
        "&amp;",
        "password 'x",
        "&quot;",
    ),
    *("password: |\n", "password: |\n x\n", "authorization: ", "cookie: a\n", "eyJ", "eyJabcdefgh.", "Digest nonce="),
    *(
        "password=[",
        "tokens: (",
        "curl -u ",
        "mysql ",
        "docker login ",
        "password=`",
        "password='''",
        "password=“",
        "'",
        '"',
    ),
    *(
        "the secret is ",
        "api ",
        "&sig=",
        "token a",
        " \t",
        "[",
        "{",
        "Credential=",
        "value='",
        "identified by ",
        "\\",
        ":",
    ),
    *(
        "<name>password</name>",
        "AKIAABCDEFGHIJKLMNOP ",
        "glpat-",
        "s.a",
        "_",
        "password:",
        "password:\n ",
        "sqlplus -a ",
    ),
}


class TestTime:
    """Twice the text takes about twice the time, whatever it is made of."""

    @staticmethod
    def cost(step: str, length: int) -> float:
        text = step * (length // len(step)) + "name=password"
        started = time.process_time()
        without_secrets(text)
        return time.process_time() - started

    @pytest.mark.costly
    def test_is_linear(self) -> None:
        slow = {}
        self.cost("password=x ", 1000)
        for step in sorted(STEPS):
            small, large = self.cost(step, 20_000), self.cost(step, 80_000)
            if large > 8 * small + 0.2:  # garbage of other tests may have been collected meanwhile
                large = min(self.cost(step, 80_000) for _ in range(3))
            if large > 8 * small + 0.2:
                slow[step] = (small, large)
        assert slow == {}

    @pytest.mark.costly
    @pytest.mark.sample(2)
    @pytest.mark.parametrize(
        "step", ["auth-type='", "//a:@x", "a=", "<", '"', "password=", "\\u0022", "name=password "]
    )
    def test_a_megabyte_takes_seconds(self, step: str) -> None:
        assert self.cost(step, 1_000_000) < 60
