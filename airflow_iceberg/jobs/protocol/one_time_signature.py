"""A signature that only its maker can make, and that everybody can check: LM-OTS of RFC 8554, of SHA-256 alone.

The driver of a job gets a seed, and the task keeps the public key that belongs to it. So what the task keeps while it
waits, perhaps in a database, is no secret. A seed signs one document: a second signature with the same seed would let
others put a third one together. Not here: what is signed (`jobs.protocol.result`), how the seed gets to the driver
(`backends.spark_submit`).

The digest of a document, and a checksum over it, are numbers from 0 to 15. For each there is a chain of hashes that
begins with a secret of the seed; its end is part of the public key. The signature holds each chain's link at the
number. Others can walk from there towards the end, not back; and a document whose numbers are all at least as large
has a smaller checksum. That is Winternitz's signature; the RFC says what is hashed beside a link: the name of the key,
the number of the chain and the number of the step, so that a guess tries one link of one key.

What was checked against the RFC, and with which vectors: docs/adr/0032.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator

from airflow_iceberg.errors import InvalidInputError

_TYPE = (3).to_bytes(4, "big")  # LMOTS_SHA256_N32_W4
_LAST = 15  # the largest number of a chain
_CHECKSUM_DIGITS = 3
_CHAINS = 64 + _CHECKSUM_DIGITS
# What is hashed beside a link, the ends of all chains, a document: numbers that no chain has.
_ENDS, _DOCUMENT, _SALT = 0x8080, 0x8181, 0xFFFD
_OF_THE_SEED = 0xFF  # the number of no step
# Bytes of a hash, of a key's name (I and q of the RFC), of a seed, a public key and a signature.
_HASH, _NAME = 32, 20
_SEED, _KEY, _SIGNATURE = _NAME + _HASH, 4 + _NAME + _HASH, 4 + _HASH + _CHAINS * _HASH

SIGNATURE_BYTES = 2 * _SIGNATURE
"""The length of a signature, which is text."""


def new_seed() -> str:
    """Return a seed, which is a secret: hexadecimal digits of the key's name and of 32 random bytes."""
    return f"{secrets.token_hex(16)}{0:08x}{secrets.token_hex(_HASH)}"


def public_key(seed: str) -> str:
    """Return what checks the signature of a seed, hexadecimal digits.

    Raises:
        InvalidInputError: it is no seed of this version.
    """
    name, secret = _parts(seed)
    ends = (_walk(name, chain, _of_seed(name, chain, secret), 0, _LAST) for chain in range(_CHAINS))
    return (_TYPE + name + _end(name, ends)).hex()


def sign(data: bytes, seed: str) -> bytes:
    """Return the signature of a document, one line of text: the same one each time.

    Raises:
        InvalidInputError: it is no seed of this version.
    """
    name, secret = _parts(seed)
    # Nobody knows it before the document is there, so that nobody can have looked for another one of its digest.
    salt = _of_seed(name, _SALT, secret)
    hashed = _begun(name, salt)
    hashed.update(data)
    numbers = _numbers(hashed.digest())
    links = (_walk(name, chain, _of_seed(name, chain, secret), 0, number) for chain, number in enumerate(numbers))
    return b"".join((_TYPE, salt, *links)).hex().encode()


def is_signed(data: bytes, signature: bytes, key: str) -> bool:
    """Whether the seed of a public key has signed a document."""
    check = SignatureCheck(signature, key)
    check.update(data)
    return check.holds()


class SignatureCheck:
    """Whether the seed of a public key has signed a document, which is hashed in parts.

    Args:
        signature: that of the document; what is none holds for none.
        key: the same.
    """

    def __init__(self, signature: bytes, key: str) -> None:
        self._signature, self._key = _bytes(signature, _SIGNATURE), _bytes(key.encode(errors="replace"), _KEY)
        self._name = self._key[4 : 4 + _NAME]
        self._hash = _begun(self._name, self._signature[4 : 4 + _HASH])

    def update(self, data: bytes) -> None:
        """Take the next part of the document."""
        self._hash.update(data)

    def holds(self) -> bool:
        """Whether it has signed the document of all parts so far."""
        if self._signature[:4] != _TYPE or self._key[:4] != _TYPE:
            return False
        links = self._signature[4 + _HASH :]
        numbers = _numbers(self._hash.digest())
        ends = (
            _walk(self._name, chain, links[_HASH * chain : _HASH * (chain + 1)], number, _LAST)
            for chain, number in enumerate(numbers)
        )
        return _end(self._name, ends) == self._key[4 + _NAME :]


def _bytes(text: bytes, size: int) -> bytes:
    """Return what hexadecimal digits say, and nothing if they are none or not as many as they should be."""
    try:
        found = bytes.fromhex(text.decode())
    except ValueError:
        return b""
    return found if len(found) == size and len(text) == 2 * size else b""


def _parts(seed: str) -> tuple[bytes, bytes]:
    found = _bytes(seed.encode(errors="replace"), _SEED)
    if not found:
        raise InvalidInputError(f"not the seed of a signature: expected {2 * _SEED} hexadecimal digits")
    return found[:_NAME], found[_NAME:]


def _begun(name: bytes, salt: bytes) -> hashlib._Hash:
    return hashlib.sha256(name + _DOCUMENT.to_bytes(2, "big") + salt)


def _numbers(digest: bytes) -> Iterator[int]:
    digits = [int(digit, 16) for digit in digest.hex()]
    checksum = sum(_LAST - digit for digit in digits)
    yield from digits
    yield from (int(digit, 16) for digit in f"{checksum:0{_CHECKSUM_DIGITS}x}")


def _of_seed(name: bytes, chain: int, secret: bytes) -> bytes:
    """Return the first link of a chain."""
    return _step(name, chain, _OF_THE_SEED, secret)


def _walk(name: bytes, chain: int, link: bytes, first: int, last: int) -> bytes:
    """Return the link at the number `last` of a chain, from the one at `first`."""
    for number in range(first, last):
        link = _step(name, chain, number, link)
    return link


def _step(name: bytes, chain: int, number: int, link: bytes) -> bytes:
    return hashlib.sha256(name + chain.to_bytes(2, "big") + number.to_bytes(1, "big") + link).digest()


def _end(name: bytes, ends: Iterable[bytes]) -> bytes:
    return hashlib.sha256(name + _ENDS.to_bytes(2, "big") + b"".join(ends)).digest()
