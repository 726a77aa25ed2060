"""A signature that only its maker can make, and that everybody can check: Winternitz's, of SHA-256 alone.

The driver of a job gets a seed, and the task keeps the public key that belongs to it. So what the task keeps while it
waits, perhaps in a database, is no secret. A seed signs one document: a second signature with the same seed would let
others put a third one together. Not here: what is signed (`jobs.protocol.result`), how the seed gets to the driver
(`backends.spark_submit`).

The digest of a document, and a checksum over it, are numbers from 0 to 15. For each there is a chain of hashes that
begins with a secret of the seed; its end is part of the public key. The signature holds each chain's link at the
number. Others can walk from there towards the end, not back; and a document whose numbers are all at least as large
has a smaller checksum.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Protocol

_LAST = 15  # the largest number of a chain
_CHECKSUM_DIGITS = 3
_CHAINS = 64 + _CHECKSUM_DIGITS


class Digest(Protocol):
    """The SHA-256 of a document that was hashed in parts, as of `hashlib`."""

    def hexdigest(self) -> str: ...


def new_seed() -> str:
    """Return a seed, which is a secret: 64 hexadecimal digits."""
    return secrets.token_hex(32)


def public_key(seed: str) -> str:
    """Return what checks the signature of a seed, 64 hexadecimal digits."""
    return _key_of([_walk(_start(seed, chain), chain, 0, _LAST) for chain in range(_CHAINS)])


def sign(data: bytes, seed: str) -> bytes:
    """Return the signature of a document, one line of text."""
    numbers = _numbers(hashlib.sha256(data).hexdigest())
    links = (_walk(_start(seed, chain), chain, 0, number) for chain, number in enumerate(numbers))
    return b"".join(links).hex().encode()


SIGNATURE_BYTES = 2 * 32 * _CHAINS
"""The length of a signature."""


def is_signed(data: bytes | Digest, signature: bytes, key: str) -> bool:
    """Whether the seed of a public key has signed a document, or one that has a digest."""
    digest = hashlib.sha256(data) if isinstance(data, bytes) else data
    try:
        links = bytes.fromhex(signature.decode())
    except ValueError:
        return False
    if len(links) != _CHAINS * 32:
        return False
    found = (links[32 * chain : 32 * chain + 32] for chain in range(_CHAINS))
    ends = [
        _walk(link, chain, number, _LAST)
        for chain, (link, number) in enumerate(zip(found, _numbers(digest.hexdigest())))
    ]
    return hmac.compare_digest(_key_of(ends), key)


def _numbers(digest: str) -> list[int]:
    checksum = sum(_LAST - int(digit, 16) for digit in digest)
    return [int(digit, 16) for digit in f"{digest}{checksum:0{_CHECKSUM_DIGITS}x}"]


def _start(seed: str, chain: int) -> bytes:
    return hmac.digest(seed.encode(), b"%d" % chain, "sha256")


def _walk(link: bytes, chain: int, first: int, last: int) -> bytes:
    """Return the link at the number `last` of a chain, from the one at `first`."""
    for number in range(first, last):
        # Each step is a function of its own, so that a guess tries one link and not all of them.
        link = hashlib.sha256(b"%d/%d/" % (chain, number) + link).digest()
    return link


def _key_of(ends: list[bytes]) -> str:
    return hashlib.sha256(b"".join(ends)).hexdigest()
