"""Read rows directly from the pages of an SQLite file that SQLite itself refuses or reads only in part.

One damaged byte on the first page hides every row from SQLite. This module reads each page with table rows on its own, also those of the
write-ahead log. The row's checksum tells the caller its table and whether it is intact. See https://sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simia.jobs.tables import LOG_HEADER, PAGE_SIZE, get_log_path

LEAF = 0x0D  # a page with rows of a table
FRAME_HEADER = 24
LONGEST_CHAIN = 1 << 18  # pages of one row, which is a gigabyte
INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def recover_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """Every row that can be read of the file and of its write-ahead log; rows that were removed or replaced may be among them."""
    main = path.read_bytes() if path.is_file() else b""
    log = get_log_path(path).read_bytes() if get_log_path(path).is_file() else b""
    stored = [(i + 1, main[i * PAGE_SIZE : (i + 1) * PAGE_SIZE]) for i in range(-(-len(main) // PAGE_SIZE))]
    whole = [(number, image) for number, image in stored if len(image) == PAGE_SIZE]
    logged: list[tuple[int, bytes]] = []
    latest: list[tuple[int, bytes]] = []
    for at in range(LOG_HEADER, len(log) - FRAME_HEADER, FRAME_HEADER + PAGE_SIZE):
        frame = int.from_bytes(log[at : at + 4], "big"), log[at + FRAME_HEADER : at + FRAME_HEADER + PAGE_SIZE]
        logged.append(frame)
        if log[at + 8 : at + 16] == log[LOG_HEADER + 8 : LOG_HEADER + 16]:  # the others are of an older log
            latest.append(frame)
    # Use the newest image of a page, for both cases: the log is newer than the file, or the log was copied into the file and then cut.
    for pages in (dict([*stored, *logged, *whole, *latest]), dict([*stored, *logged, *latest, *whole])):
        for number, image in [*stored, *logged]:
            start = 100 if number == 1 else 0
            if len(image) > start + 8 and image[start] == LEAF:
                yield from rows_of(image, start, pages)


def rows_of(page: bytes, start: int, pages: dict[int, bytes]) -> Iterator[tuple[Any, ...]]:
    for i in range(int.from_bytes(page[start + 3 : start + 5], "big")):
        place = start + 8 + 2 * i
        try:
            payload = payload_at(page, int.from_bytes(page[place : place + 2], "big"), pages)
            yield decode(payload)
        except (IndexError, ValueError, KeyError, struct.error):
            continue  # a row that is cut, or none


def payload_at(page: bytes, at: int, pages: dict[int, bytes]) -> bytes:
    """A row's record, its overflow pages joined."""
    size, at = varint(page, at)
    _, at = varint(page, at)
    most, least = PAGE_SIZE - 35, (PAGE_SIZE - 12) * 32 // 255 - 23
    if size <= most:
        return page[at : at + size]
    local = least + (size - least) % (PAGE_SIZE - 4)
    local = local if local <= most else least
    parts, left = [page[at : at + local]], size - local
    following = int.from_bytes(page[at + local : at + local + 4], "big")
    for _ in range(LONGEST_CHAIN):
        if left <= 0:
            return b"".join(parts)
        overflow = pages[following]
        parts.append(overflow[4 : 4 + left])
        left -= PAGE_SIZE - 4
        following = int.from_bytes(overflow[:4], "big")
    raise ValueError("too long")


def decode(record: bytes) -> tuple[Any, ...]:
    end, at = varint(record, 0)
    body, values = end, []
    while at < end:
        kind, at = varint(record, at)
        size = INTEGERS.get(kind, 8 if kind == 7 else (kind - 12) // 2 if kind >= 12 else 0)
        raw = record[body : body + size]
        if len(raw) < size:
            raise ValueError("cut")
        body += size
        values.append(value_of(kind, raw))
    return tuple(values)


def value_of(kind: int, raw: bytes) -> Any:
    if kind in INTEGERS:
        return int.from_bytes(raw, "big", signed=True)
    if kind == 7:
        return struct.unpack(">d", raw)[0]
    if kind >= 12:
        return raw.decode() if kind % 2 else raw
    return {0: None, 8: 0, 9: 1}[kind]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer, and the place after it."""
    value = 0
    for i in range(9):
        byte = data[at + i]
        if i == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    raise AssertionError
