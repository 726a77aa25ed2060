"""Puffin files and deletion vectors: read, written, and refused where they are damaged."""

import struct
import tracemalloc
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError
from airflow_iceberg.format import deletion_vectors
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.puffin import DELETION_VECTOR, Blob, write_puffin
from tests.support.data_files import puffin_footer
from tests.support.sampling import examples


def ranges(draw: tuple[int, int]) -> range:
    return range(draw[0], draw[0] + draw[1])


SPANS = st.tuples(st.sampled_from([0, 5, 65_530, 1 << 20, (1 << 32) - 3, 1 << 40]), st.integers(1, 6000)).map(ranges)
POSITIONS = st.one_of(
    st.sets(st.integers(0, 1 << 34), max_size=50),
    st.lists(SPANS, max_size=4).map(lambda spans: {position for span in spans for position in span}),
    SPANS.map(lambda span: {position * 7 for position in span}),
)


def roaring(positions: Iterable[int]) -> bytes:
    bitmap = BitMap64(positions)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def sealed(vector: bytes) -> bytes:
    covered = b"\xd1\xd3\x39\x64" + vector
    return struct.pack(">I", len(covered)) + covered + struct.pack(">I", zlib.crc32(covered))


class TestADeletionVectorIsAPortableRoaringBitmap:
    """Length (big endian), magic, 64-bit roaring bitmap, CRC-32 (big endian)."""

    @given(POSITIONS)
    @examples(60)
    def test_another_implementation_reads_ours(self, positions: set[int]) -> None:
        blob = RowPositions.of(positions).to_blob()
        assert struct.unpack(">I", blob[:4]) == (len(blob) - 8,)
        assert struct.unpack(">I", blob[-4:]) == (zlib.crc32(blob[4:-4]),)
        assert set(BitMap64.deserialize(blob[8:-4])) == positions

    @given(POSITIONS)
    @examples(60)
    def test_we_read_that_of_another(self, positions: set[int]) -> None:
        found = RowPositions.from_blob(sealed(roaring(positions)))
        assert set(found.to_array().tolist()) == positions
        assert found.cardinality == len(positions)
        assert found == RowPositions.of(positions)

    @given(POSITIONS, POSITIONS)
    @examples(30)
    def test_vectors_are_merged(self, left: set[int], right: set[int]) -> None:
        read = RowPositions.from_blob(RowPositions.of(left).to_blob())
        both = read.union(RowPositions.of(right))
        assert set(both.to_array().tolist()) == left | right
        assert RowPositions.from_blob(both.to_blob()) == both

    @given(POSITIONS, POSITIONS)
    @examples(30)
    def test_one_covers_another(self, left: set[int], right: set[int]) -> None:
        mine, theirs = (RowPositions.from_blob(sealed(roaring(positions))) for positions in (left, right))
        assert mine.covers(theirs) is (right <= left)
        assert mine.union(theirs).covers(theirs)
        assert not mine.covers(RowPositions.of([*left, max(left, default=0) + 1]))

    @given(POSITIONS, st.integers(0, 70_000), st.integers(0, 140_000))
    @examples(60)
    def test_the_mask_of_some_rows(self, positions: set[int], start: int, count: int) -> None:
        found = RowPositions.from_blob(sealed(roaring(positions)))
        assert found.mask(start, count).tolist() == [start + i in positions for i in range(count)]

    def test_runs_that_touch_are_one(self) -> None:
        body = struct.pack("<IBHHHHHHH", 12347, 1, 0, 19, 2, 0, 9, 10, 9)
        found = RowPositions.from_blob(sealed(struct.pack("<QI", 1, 0) + body))
        assert found == RowPositions.of(range(20))
        assert found.mask(0, 21).tolist() == [True] * 20 + [False]
        for spans in ([(0, 3), (3, 5), (9, 10)], [(1, 2), (4, 6), (6, 7), (7, 9)], [(0, 65_535), (65_535, 65_536)]):
            expected = {position for span in spans for position in range(*span)}
            pairs = b"".join(struct.pack("<HH", first, end - first - 1) for first, end in spans)
            head = struct.pack("<QIIBHHH", 1, 0, 12_347, 1, 0, len(expected) - 1, len(spans))
            assert set(RowPositions.from_blob(sealed(head + pairs)).to_array().tolist()) == expected, spans

    def test_a_negative_position_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="position of a row is -1, expected 0 or more"):
            RowPositions.of([3, -1])


class TestAHugeVector:
    """The work for sparse positions grows like their number: not by 65,536 for each of them, and not by its square."""

    def work(self, count: int, monkeypatch: pytest.MonkeyPatch) -> int:
        """Return the number of positions and bits that two vectors cost to be read, merged and written."""
        one = RowPositions.of(np.arange(count) << 16)
        other = RowPositions.of((np.arange(count) << 16) + 7)
        blobs = one.to_blob(), other.to_blob()
        work = 0
        real = deletion_vectors._Container.mask

        def mask(container: Any) -> Any:
            nonlocal work
            work += 1 << 16
            return real(container)

        monkeypatch.setattr(deletion_vectors._Container, "mask", mask)
        merged = RowPositions.from_blob(blobs[0]).union(RowPositions.from_blob(blobs[1]))
        assert merged.to_array().tolist() == sorted([*one.to_array().tolist(), *other.to_array().tolist()])
        assert RowPositions.from_blob(merged.to_blob()) == merged
        monkeypatch.undo()
        return work + merged.cardinality

    @pytest.mark.costly
    def test_of_sparse_positions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert [self.work(count, monkeypatch) for count in (500, 1000, 2000)] == [1000, 2000, 4000]

    def test_many_vectors_of_the_same_rows_are_merged_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        masks = []
        real = deletion_vectors._Container.mask
        monkeypatch.setattr(deletion_vectors._Container, "mask", lambda item: masks.append(1) or real(item))
        vectors = [RowPositions.of(range(start, 65_536, 50)) for start in range(50)]
        merged = vectors[0].union(*vectors[1:])
        assert (merged.cardinality, len(masks)) == (65_536, 0)


class TestAHostileVector:
    """A few bytes say that all rows of a huge file are deleted."""

    def test_two_of_them_are_compared_in_their_own_size(self) -> None:
        bitmap = BitMap64()
        bitmap.add_range(0, 300 << 16)
        other = bitmap.copy()
        other.discard(5)
        blobs = [sealed(bytes(each.serialize())) for each in (bitmap, other) if each.run_optimize() or True]
        assert max(map(len, blobs)) < 4_500
        tracemalloc.start()
        full, holed = map(RowPositions.from_blob, blobs)
        assert full.covers(holed)
        assert not holed.covers(full)
        assert RowPositions.from_blob(blobs[1]).covers(holed)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert full.cardinality == 300 << 16
        assert peak < 2 << 20

    @pytest.mark.costly
    def test_runs_that_touch_take_no_more_than_they_are_stored_in(self) -> None:
        """Two runs in 10 bytes have all positions of a container, and a bitmap has 8 KB."""
        count = 3_000
        heads = b"".join(struct.pack("<HH", key, 65_535) for key in range(count))
        start = 4 + (count + 7) // 8 + 8 * count
        offsets = b"".join(struct.pack("<I", start + 10 * number) for number in range(count))
        body = struct.pack("<HHHHH", 2, 0, 32_767, 32_768, 32_767) * count
        cookie = struct.pack("<QII", 1, 0, 12_347 | (count - 1) << 16)
        blob = sealed(cookie + b"\xff" * ((count + 7) // 8) + heads + offsets + body)
        found = RowPositions.from_blob(blob)
        assert found.cardinality == count << 16
        assert found.size_bytes < 30 * len(blob)
        # One more position in each container leaves them what they are.
        merged = found.union(RowPositions.of(np.arange(count, dtype=np.int64) << 16))
        assert merged.cardinality == count << 16
        assert merged.size_bytes < 30 * len(blob)
        assert merged.mask(65_530, 10).all()


class TestADamagedVectorIsRefused:
    """Nothing is read from bytes whose length, magic or checksum is wrong, or that say what cannot be."""

    BLOB = RowPositions.of([1, 5, 70_000]).to_blob()

    @pytest.mark.parametrize(("blob", "message"), [
        (BLOB[:-1], "unexpected length"), (BLOB[:4] + b"\x00" + BLOB[5:], "unexpected magic"),
        (BLOB[:12] + b"\x07" + BLOB[13:], "checksum of a deletion vector differs"),
    ])  # fmt: skip
    def test_by_its_length_magic_or_checksum(self, blob: bytes, message: str) -> None:
        with pytest.raises(FormatError, match=message):
            RowPositions.from_blob(blob, path="x.puffin")

    @pytest.mark.parametrize(("vector", "message"), [
        (struct.pack("<Q", 1 << 60), "unexpected number"), (struct.pack("<QII", 1, 0, 12346), "unexpected end"),
        (struct.pack("<QIII", 1, 0, 12346, 1 << 31), "unexpected number"),
        (struct.pack("<QIII", 1, 1 << 31, 12346, 0), "unexpected key"),
        (struct.pack("<QIII", 1, 0, 99, 0), "unexpected cookie"),
        (struct.pack("<QIIIHHIHH", 1, 0, 12346, 1, 0, 1, 16, 5, 5), "not in order"),
        (struct.pack("<QIIIHHIHH", 1, 0, 12346, 1, 0, 1, 17, 5, 6), "unexpected offset"),
        (struct.pack("<QIIBHHHHH", 1, 0, 12347, 1, 0, 9, 1, 0, 8), "holds 9 positions, expected 10"),
        (struct.pack("<QB", 0, 0), "bytes after the last bitmap"),
    ])  # fmt: skip
    def test_by_what_it_says(self, vector: bytes, message: str) -> None:
        with pytest.raises(FormatError, match=message):
            RowPositions.from_blob(sealed(vector))

    @pytest.mark.costly
    @given(POSITIONS, st.data())
    @examples(300)
    def test_mutations_give_our_errors_only_and_no_more_than_the_blob_can_hold(self, positions, data):
        vector = bytearray(roaring(positions))
        for _ in range(data.draw(st.integers(1, 4))):
            vector[data.draw(st.integers(0, len(vector) - 1))] = data.draw(st.integers(0, 255))
        try:
            found = RowPositions.from_blob(sealed(bytes(vector)))
        except IcebergError:
            return
        assert found.size_bytes <= 100 * len(vector) + 1000
        assert found.cardinality == len(found.to_array())


class TestAPuffinFileHoldsBlobs:
    """Magic, blobs, and a footer in JSON that says where each lies."""

    VECTORS = (RowPositions.of([1, 2]).to_blob(), RowPositions.of(range(1000)).to_blob())

    def file(self) -> bytes:
        blobs = [
            Blob(type=DELETION_VECTOR, data=blob, properties={"referenced-data-file": f"f{i}", "cardinality": "2"})
            for i, blob in enumerate(self.VECTORS)
        ]
        return write_puffin(blobs, properties={"created-by": "tests"})[0]

    def test_several_vectors_share_a_file(self) -> None:
        data = self.file()
        footer = puffin_footer(data)
        assert [data[b["offset"] : b["offset"] + b["length"]] for b in footer["blobs"]] == list(self.VECTORS)
        assert [blob["properties"]["referenced-data-file"] for blob in footer["blobs"]] == ["f0", "f1"]
        assert footer["properties"] == {"created-by": "tests"}
        assert {(blob["snapshot-id"], blob["sequence-number"]) for blob in footer["blobs"]} == {(-1, -1)}
