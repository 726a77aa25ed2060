"""The signature of a job's result: LM-OTS as RFC 8554 writes it, and what a forger may try.

`tests/golden/rfc8554_test_case_2.json` has the numbers of the RFC's appendix F.
"""

import hashlib
import json
import operator
import random
from pathlib import Path

import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.protocol import one_time_signature
from airflow_iceberg.jobs.protocol.one_time_signature import (
    SIGNATURE_BYTES,
    SignatureCheck,
    is_signed,
    new_seed,
    public_key,
    sign,
)

CASE = json.loads((Path(__file__).parents[1] / "golden" / "rfc8554_test_case_2.json").read_text("utf-8"))
MESSAGE = bytes.fromhex(CASE["message"])
NAME = CASE["I"] + CASE["q"]
RFC_SEED = NAME + CASE["SEED"]
SEED = new_seed()


class TestTheStandard:
    """LMOTS_SHA256_N32_W4, byte by byte."""

    def test_a_seed_of_the_rfc_signs_as_the_rfc_has_signed(self) -> None:
        assert sign(MESSAGE, RFC_SEED).decode() == CASE["signature"]
        assert len(CASE["signature"]) == SIGNATURE_BYTES

    def test_the_public_key_is_a_leaf_of_the_tree_of_the_rfc(self) -> None:
        """Whose root is all of the tree that the RFC gives (section 5.4.2: how a leaf leads to it)."""
        key = public_key(RFC_SEED)
        assert key[: 8 + 40] == f"00000003{NAME}"
        identifier, node = bytes.fromhex(CASE["I"]), (1 << len(CASE["path"])) + int(CASE["q"], 16)
        found = hashlib.sha256(identifier + node.to_bytes(4) + b"\x82\x82" + bytes.fromhex(key[48:])).digest()
        for beside in map(bytes.fromhex, CASE["path"]):
            pair = beside + found if node % 2 else found + beside
            node //= 2
            found = hashlib.sha256(identifier + node.to_bytes(4) + b"\x83\x83" + pair).digest()
        assert found.hex() == CASE["root"]

    def test_what_the_rfc_has_signed_is_signed(self) -> None:
        signature, key = CASE["signature"].encode(), public_key(RFC_SEED)
        assert is_signed(MESSAGE, signature, key)
        assert not is_signed(MESSAGE + b"\0", signature, key)
        assert not is_signed(MESSAGE[:-1], signature, key)

    def test_a_document_may_come_in_parts(self) -> None:
        check = SignatureCheck(CASE["signature"].encode(), public_key(RFC_SEED))
        assert not check.holds()
        for start in range(0, len(MESSAGE), 7):
            check.update(MESSAGE[start : start + 7])
        assert check.holds()
        check.update(b" ")
        assert not check.holds()


class TestForgery:
    """Whoever has a signature, and the key, gets no other document signed."""

    def test_a_seed_signs_for_its_own_key_alone(self) -> None:
        seed, other = new_seed(), new_seed()
        signature = sign(b"one", seed)
        assert is_signed(b"one", signature, public_key(seed))
        assert not is_signed(b"one", signature, public_key(other))
        assert not is_signed(b"one", sign(b"one", other), public_key(seed))
        # The name of the key is part of each hash: with the secret of one, the name of another is of no use.
        mixed = other[:40] + seed[40:]
        assert not is_signed(b"one", sign(b"one", mixed), public_key(seed))
        assert not is_signed(b"one", sign(b"one", mixed), public_key(other))

    def test_no_link_of_a_signature_is_of_use_for_another_document(self) -> None:
        """Each link can be moved towards the end of its chain; the checksum then needs one that goes back."""
        seed = new_seed()
        signature, key = sign(b"one", seed), public_key(seed)
        assert not any(is_signed(b"%d" % number, signature, key) for number in range(100))
        for place in range(0, len(signature), 8):
            changed = bytearray(signature)
            changed[place] = ord("0") if changed[place] != ord("0") else ord("1")
            assert not is_signed(b"one", bytes(changed), key)

    def test_any_other_digest_asks_for_a_link_nearer_to_the_beginning(self) -> None:
        """Also one whose digits are all at least as large: then the checksum has a smaller one."""
        numbers, choose = one_time_signature._numbers, random.Random(1)
        digests = [bytes(32), b"\xff" * 32, b"\x10" * 32, *(choose.randbytes(32) for _ in range(100))]
        larger = []
        for digest in digests:
            digits = digest.hex()
            raised = [f"{min(int(digit, 16) + 1, 15):x}" for digit in digits]
            one_up = [f"{digits[:at]}{raised[at]}{digits[at + 1 :]}" for at in range(64)]
            some_up = ["".join(f"{choose.randint(int(digit, 16), 15):x}" for digit in digits) for _ in range(20)]
            larger += [(digest, bytes.fromhex(other)) for other in (*one_up, *some_up, "f" * 64)]
        pairs = [*larger, *((a, b) for a in digests for b in digests)]
        assert all(len(list(numbers(digest))) == 67 for digest in digests)
        assert {number for digest in digests for number in numbers(digest)} == set(range(16))
        others = [(one, two) for one, two in pairs if one != two]
        assert len(others) > 10_000
        assert [two for one, two in others if all(map(operator.le, numbers(one), numbers(two)))] == []

    def test_two_links_do_not_change_their_places(self) -> None:
        signature, key = sign(b"one", SEED), public_key(SEED)
        head, links = signature[:72], [signature[at : at + 64] for at in range(72, len(signature), 64)]
        for at in range(66):
            swapped = [*links[:at], links[at + 1], links[at], *links[at + 2 :]]
            assert not is_signed(b"one", head + b"".join(swapped), key)

    def test_neither_the_key_nor_a_signature_shows_the_secret(self) -> None:
        key, signature = public_key(SEED), sign(b"one", SEED).decode()
        secret = SEED[40:]
        assert SEED[:40] == key[8:48]
        assert len(secret) == 64
        assert secret not in key
        assert secret not in signature

    def test_a_document_that_is_signed_again_shows_nothing_more(self) -> None:
        assert sign(b"one", SEED) == sign(b"one", SEED)
        assert sign(b"one", SEED)[8:72] == sign(b"two", SEED)[8:72]  # what is hashed with it is of the seed alone

    def test_seeds_and_their_names_are_new(self) -> None:
        seeds = [new_seed() for _ in range(100)]
        assert len({seed[:40] for seed in seeds}) == len({seed[40:] for seed in seeds}) == 100


class TestWhatIsNone:
    """It is refused, and no error of Python's reaches the caller."""

    @pytest.mark.parametrize(
        "signature",
        [
            b"",
            b"00",
            b"\xff",
            "ä".encode(),
            b"x" * SIGNATURE_BYTES,
            b"0" * SIGNATURE_BYTES,
            b" " * SIGNATURE_BYTES,
            sign(b"one", SEED) + b" ",
            b" " + sign(b"one", SEED),
            sign(b"one", SEED)[:-2],
            b"00000004" + sign(b"one", SEED)[8:],
        ],
        # Signatures differ from process to process: names of tests must not.
        ids=["empty", "short", "a byte", "ä", "xs", "zeros", "blanks", "a blank behind", "before", "cut", "other"],
    )
    def test_a_signature(self, signature: bytes) -> None:
        assert not is_signed(b"one", signature, public_key(SEED))

    def test_a_key(self) -> None:
        key, signature = public_key(SEED), sign(b"one", SEED)
        others = ["", "ä", "\ud800", "x" * len(key), key[8:], key[48:], f" {key}", key[:-2], f"00000004{key[8:]}"]
        assert is_signed(b"one", signature, key)
        assert not any(is_signed(b"one", signature, other) for other in others)

    def test_a_seed(self) -> None:
        for seed in ("", "s3cr3t", "\ud800", "x" * len(SEED), SEED[:-2], SEED + "00"):
            for use in (public_key, lambda seed: sign(b"one", seed)):
                with pytest.raises(InvalidInputError, match="not the seed of a signature: expected 104") as error:
                    use(seed)
                assert "s3cr3t" not in str(error.value)
