"""A signer of S3 requests, as a REST catalog offers it: signs for whoever shows a token that counts.

    with S3Signer(ACCESS_KEY, SECRET_KEY, may=lambda token, uri: token in good) as signer:
        properties = {"s3.remote-signing-enabled": "true", "s3.signer.uri": signer.uri}

It has the keys, the clients have none. Payloads are not signed, since it does not see them.
"""

import json
from collections.abc import Callable

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.http_server import HttpServer, Reply, Request

PATH = "/v1/aws/s3/sign"


class S3Signer(HttpServer):
    """Listens on the loopback interface.

    Args:
        may: whether a request to this address may be made by who shows this token.

    Attributes:
        refused: how many it did not sign.
    """

    def __init__(self, access_key: str, secret_key: str, *, may: Callable[[str, str], bool], path: str = PATH) -> None:
        super().__init__(self._answer)
        self._credentials = Credentials(access_key, secret_key)
        self._may = may
        self._path = path
        self.refused = 0

    def _answer(self, request: Request) -> Reply:
        if (request.method, request.path) != ("POST", self._path):
            return _error(404, "no such endpoint")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        question = json.loads(request.body)
        if not self._may(token, question["uri"]):
            self.refused += 1
            return _error(401, f"the token {token} does not count here")
        signed = self._sign(question)
        return Reply(body=json.dumps({"uri": question["uri"], "headers": signed}).encode())

    def _sign(self, question: dict[str, object]) -> dict[str, list[str]]:
        headers = {name: ", ".join(values) for name, values in question["headers"].items()}  # type: ignore[attr-defined]
        request = AWSRequest(method=str(question["method"]), url=str(question["uri"]), headers=headers)
        _UnsignedPayload(self._credentials, "s3", str(question["region"])).add_auth(request)
        return {name: [str(value)] for name, value in request.headers.items()}


class _UnsignedPayload(S3SigV4Auth):
    def payload(self, request: AWSRequest) -> str:
        return "UNSIGNED-PAYLOAD"


def _error(status: int, message: str) -> Reply:
    return Reply(status=status, body=json.dumps({"error": {"message": message, "code": status}}).encode())
