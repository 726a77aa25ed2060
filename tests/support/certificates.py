"""Certificates for servers and clients on loopback, made for one test run."""

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificates:
    """PEM files.

    Attributes:
        authority: who signed all of them, and is to be trusted.
        server: of 127.0.0.1; certificate and key in one file.
        client, client_key: of a client, in two files.
        client_both: the same in one file.
        client_locked: the same in one file, its key under `password`.
    """

    authority: Path
    server: Path
    client: Path
    client_key: Path
    client_both: Path
    client_locked: Path
    password: str

    def server_context(self) -> ssl.SSLContext:
        """The context of a server that lets in only who shows a certificate of the authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        context.load_verify_locations(self.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        # With 1.3 a client hears that it was refused only after it has sent its first request.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context


def make_certificates(folder: Path) -> Certificates:
    """Make an authority, and what it signs for a server and a client."""
    password = "pass-of-the-key"
    root_key, root = _signed("authority", None)
    files: dict[str, Path] = {}

    def write(name: str, *parts: bytes) -> None:
        files[name] = folder / f"{name}.pem"
        files[name].write_bytes(b"".join(parts))

    server_key, server = _signed("server", (root_key, root))
    client_key, client = _signed("client-7", (root_key, root))
    write("authority", _pem(root))
    write("server", _pem(server), _key_pem(server_key))
    write("client", _pem(client))
    write("client_key", _key_pem(client_key))
    write("client_both", _pem(client), _key_pem(client_key))
    write("client_locked", _pem(client), _key_pem(client_key, password))
    return Certificates(password=password, **files)


_Signer = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def _signed(common_name: str, by: _Signer | None) -> _Signer:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = dt.datetime.now(dt.UTC)
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signer = by[0] if by else key
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(by[1].subject if by else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=7))
        .add_extension(loopback, critical=False)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if by is None:
        # Signatures, also of certificates and of their revocations, and nothing else.
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        made = made.add_extension(usage, critical=True)
    return key, made.sign(signer, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, password: str | None = None) -> bytes:
    secret: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        secret = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
