"""VTK XML files of unstructured grids and surfaces (.vtu, .vtp), read without VTK.

VTK's reader ends the process on some broken files; it also reads a number with a broken digit as the digits before it, returns
uninitialised memory for a cell array that a piece lacks, and asks for gigabytes where a size is wrong.

Data in: the bytes of a file: arrays as text, base64 inside the XML, or appended (raw or base64); not compressed or with zlib, lz4 or lzma;
32- or 64-bit headers of either byte order; any number of pieces. Data out: `Contents`, or ValueError with one sentence. A stored array is
[bytes] values, or [blocks, block size, last block size or 0, compressed sizes ..] blocks. Sizes that the file gives are checked against
the length of the file and the numbers of points or cells before memory is taken.
Source: https://docs.vtk.org/en/latest/vtk_file_formats/vtkxml_file_format.html.
"""

import binascii
import lzma
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files.contents import CELL_ARRAYS, LINE, POLY_LINE, POLYGON, STRIP, VERTICES, Contents, refuse_strange_corners
from meanfield_pde.files.vtk import vtk_messages
from meanfield_pde.sphere import FloatArray

INTEGERS = {f"{sign}Int{bits}": f"{sign[:1].lower() or 'i'}{bits // 8}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
FLOATS = {"Float32": "f4", "Float64": "f8"}
WORDS = {"UInt32": "u4", "UInt64": "u8"}
ORDERS = {"LittleEndian": "<", "BigEndian": ">"}
GROUPS: dict[str, dict[str, int | None]] = {
    "UnstructuredGrid": {"Cells": None},
    "PolyData": {"Verts": VERTICES[0], "Lines": LINE, "Polys": POLYGON, "Strips": STRIP},
}
"""Elements that hold cells, and their type (None: each cell has its own), in the order in which the cell arrays have them."""
LZ4_RATIO = 255
"""lz4 compresses by at most this factor."""
LZMA_MEMORY = 1 << 27
"""Bytes that the lzma decompressor may use; VTK's strongest setting needs half of it."""
LONGEST_NAME = 1 << 16
"""Most bytes of the name of a mesh, the one array whose length does not follow from the numbers of points and cells."""
LONGEST_COUNT = 18
"""Most digits of a count, so that it fits into 64 bits."""


def read_vtk_xml(content: bytes) -> Contents:
    """The cells of a .vtu or .vtp file. Raises ValueError with one sentence if it is cut short, no such file or not what it says it is."""
    root, file = _parsed(content)
    kind = root.get("type")
    data = root.find(kind) if kind in GROUPS else None
    if kind is None or data is None:
        raise ValueError(f"it holds data of type {_shown(kind)}, wanted {' or '.join(GROUPS)}")
    pieces = [_piece(file, piece, GROUPS[kind]) for piece in data.findall("Piece")]
    if not pieces:
        raise ValueError("it holds no piece, wanted points and cells")
    return _joined(pieces, _name(file, data))


@dataclass(frozen=True)
class _File:
    """How arrays are stored. appended: what follows the underscore; is_base64: whether that is text."""

    order: str
    word: np.dtype
    decompress: Callable[[bytes, int], bytes] | None
    appended: bytes
    is_base64: bool


def _parsed(content: bytes) -> tuple[Element, _File]:
    if not content.rstrip().endswith(b"</VTKFile>"):
        raise ValueError("it is empty, truncated or no VTK XML file, wanted one that ends in </VTKFile>")
    head, tag, tail = content.partition(b"<AppendedData")
    if b"<!DOCTYPE" in head:
        raise ValueError("it declares a document type, which no VTK XML file does")
    try:
        root = ElementTree.fromstring(head + b"</VTKFile>" if tag else content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ValueError(f"its header is no XML ({str(error)[:80]}), wanted a VTK XML file") from None
    attributes, _, appended = tail.partition(b">")
    appended = appended[: max(appended.rfind(b"</AppendedData"), 0)].lstrip()
    if tag and appended[:1] != b"_":
        raise ValueError("its appended data do not begin with an underscore, the file is corrupt")
    order = ORDERS[_choice(root, "byte_order", ORDERS, "LittleEndian")]
    word = np.dtype(order + WORDS[_choice(root, "header_type", WORDS, "UInt32")])
    compressor = _choice(root, "compressor", DECOMPRESSORS, "none")
    return root, _File(order, word, DECOMPRESSORS[compressor], appended[1:], b"raw" not in attributes)


def _piece(file: _File, piece: Element, groups: Mapping[str, int | None]) -> Contents:
    offsets, parts = np.zeros(1, dtype=np.int64), [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))]
    for group, cell_type in groups.items():
        if n := _count(piece, f"NumberOf{group}", None if cell_type is None else "0"):
            ends = np.concatenate([[0], _values(file, _named(piece, group, "offsets"), np.int64, n)])
            if (ends[1:] < ends[:-1]).any():
                raise ValueError("its cell offsets fall, wanted offsets that rise from 0 to the length of the connectivity")
            types = _values(file, _named(piece, group, "types"), np.int64, n) if cell_type is None else np.full(n, cell_type)
            if cell_type == LINE:
                types[np.diff(ends) != 2] = POLY_LINE
            parts.append((types, _values(file, _named(piece, group, "connectivity"), np.int64, int(ends[-1]))))
            offsets = np.concatenate([offsets, offsets[-1] + ends[1:]])
    all_types, corners = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Contents(_points(file, piece), all_types, offsets, corners, _cell_arrays(file, piece, len(offsets) - 1))


def _joined(pieces: list[Contents], name: str | None) -> Contents:
    if len(pieces) == 1:
        return replace(pieces[0], name=name)
    starts = np.cumsum([0, *(len(piece.points) for piece in pieces[:-1])])
    ends = np.cumsum([0, *(len(piece.cell_vertices) for piece in pieces[:-1])])
    for k, piece in enumerate(pieces):
        refuse_strange_corners(piece, f"piece {k}, ")
    arrays = {}
    for array in CELL_ARRAYS:
        held = [piece.arrays[array] for piece in pieces if array in piece.arrays]
        if held and len(held) < len(pieces):
            raise ValueError(f"cell array {array!r} is in {len(held)} of {len(pieces)} pieces, wanted it in all or none")
        if held:
            arrays[array] = np.concatenate(held)
    return Contents(
        points=np.concatenate([piece.points for piece in pieces]),
        types=np.concatenate([piece.types for piece in pieces]),
        offsets=np.concatenate([[0], *(end + piece.offsets[1:] for end, piece in zip(ends, pieces, strict=True))]),
        cell_vertices=np.concatenate([piece.cell_vertices + start for start, piece in zip(starts, pieces, strict=True)]),
        arrays=arrays,
        name=name,
    )


def _points(file: _File, piece: Element) -> FloatArray:
    n = _count(piece, "NumberOfPoints")
    array = piece.find("Points/DataArray")
    if array is None:
        if n:
            raise ValueError(f"it has {n} points and no array of them, wanted Points with a DataArray")
        return np.zeros((0, 3))
    if _count(array, "NumberOfComponents", "1") != 3:
        raise ValueError(f"its points have {_count(array, 'NumberOfComponents', '1')} coordinates, wanted 3")
    return _values(file, array, np.float64, 3 * n).reshape(n, 3)


def _cell_arrays(file: _File, piece: Element, n: int) -> dict[str, FloatArray]:
    found = {}
    for name, columns in CELL_ARRAYS.items():
        array = piece.find(f"CellData/*[@Name='{name}']")
        if array is None:
            continue
        if (given := _count(array, "NumberOfComponents", "1")) != columns:
            shapes = [f"({n},)" if width == 1 else f"({n}, {width})" for width in (given, columns)]
            raise ValueError(f"cell array {name!r} has shape {shapes[0]}, wanted {shapes[1]}")
        values = _values(file, array, np.float64, n * columns)
        found[name] = values if columns == 1 else values.reshape(n, columns)
    return found


def _name(file: _File, data: Element) -> str | None:
    """The field array "name", if it is one string."""
    arrays = data.findall("FieldData/*[@Name='name']")
    if len(arrays) != 1 or arrays[0].get("type") != "String" or _count(arrays[0], "NumberOfTuples", "1") != 1:
        return None
    array = arrays[0]
    if _is_text(array):
        letters = _numbers(array, int)
        stored = bytes(letters) if all(0 <= letter < 256 for letter in letters) else b"\xff"
    else:
        stored = _stored(file, array, None)
    try:
        return stored.removesuffix(b"\0").decode()
    except UnicodeDecodeError:
        raise ValueError("its name is no text in UTF-8") from None


def _named(piece: Element, group: str, name: str) -> Element:
    array = piece.find(f"{group}/*[@Name='{name}']")
    if array is None:
        raise ValueError(f"its cells have no array {name!r}, wanted connectivity, offsets and, in a .vtu, types")
    return array


def _values(file: _File, array: Element, dtype: type, count: int) -> np.ndarray:
    """The numbers of an array, as np.int64 or np.float64; ValueError unless it has `count` numbers, and integers for np.int64."""
    types = INTEGERS if dtype is np.int64 else FLOATS | INTEGERS
    kind = types[_choice(array, "type", types, "missing")]
    if _is_text(array):
        numbers = _numbers(array, float if kind in FLOATS.values() else int)
        if len(numbers) != count:
            raise ValueError(f"array {_shown(array.get('Name'))} has {len(numbers)} values, wanted {count}")
        try:
            return np.array(numbers, dtype=np.float64 if kind in FLOATS.values() else np.int64).astype(dtype)
        except OverflowError:
            raise ValueError(f"array {_shown(array.get('Name'))} has an integer of more than 64 bits") from None
    stored = np.dtype(file.order + kind)
    with np.errstate(invalid="ignore"):  # numpy warns of signalling NaNs, which are refused later
        return np.frombuffer(_stored(file, array, count * stored.itemsize), dtype=stored).astype(dtype)


def _is_text(array: Element) -> bool:
    return _choice(array, "format", ("ascii", "binary", "appended"), "ascii") == "ascii"


def _numbers(array: Element, number: Callable[[str], Any]) -> list[Any]:
    try:
        return [number(word) for word in (array.text or "").split()]
    except ValueError as error:
        raise ValueError(f"array {_shown(array.get('Name'))} is no list of numbers ({str(error)[:80]})") from None


def _stored(file: _File, array: Element, wanted: int | None) -> bytes:
    """The bytes of a binary array, decompressed. wanted: how many there must be, None for a name, which may have any length."""
    data, start, is_base64 = file.appended, 0, file.is_base64
    if array.get("format") == "binary":
        data, is_base64 = "".join((array.text or "").split()).encode("ascii", "replace"), True
    else:
        start = _count(array, "offset")
    try:
        return _uncompressed(file, data, start, is_base64, wanted)
    except (ValueError, zlib.error, lzma.LZMAError) as error:
        name = _shown(array.get("Name"))
        raise ValueError(f"array {name} cannot be read, the file is truncated or corrupt: {str(error)[:120]}") from None


def _uncompressed(file: _File, data: bytes, start: int, is_base64: bool, wanted: int | None) -> bytes:
    size = file.word.itemsize
    first = int(np.frombuffer(_slice(data, start, size, is_base64)[0], file.word)[0])
    if file.decompress is None:
        _refuse_length(first, wanted)
        return _slice(data, start, size + first, is_base64)[0][size:]
    header, start = _slice(data, start, size * (3 + first if first else 1), is_base64)
    _, block, last, *packed = np.frombuffer(header, file.word).tolist() if first else (0, 0, 0)
    sizes = [block] * (first - 1) + [last or block] * (first > 0)
    _refuse_length(sum(sizes), wanted)
    stream = _slice(data, start, sum(packed), is_base64)[0]
    parts, at = [], 0
    for length, full in zip(packed, sizes, strict=True):
        parts.append(file.decompress(stream[at : at + length], full))
        at += length
        if len(parts[-1]) != full:
            raise ValueError(f"a block has {len(parts[-1])} bytes, wanted {full}")
    return b"".join(parts)


def _refuse_length(length: int, wanted: int | None) -> None:
    if length != wanted if wanted is not None else length > LONGEST_NAME:
        raise ValueError(f"it has {length} bytes, wanted {f'at most {LONGEST_NAME}' if wanted is None else wanted}")


def _slice(data: bytes, start: int, size: int, is_base64: bool) -> tuple[bytes, int]:
    """`size` bytes stored from `start` on, and where the next ones begin. base64 writes three bytes, or what is left, as four letters."""
    end = start + (-(-size // 3) * 4 if is_base64 else size)
    if end > len(data):
        raise ValueError(f"it ends {end - len(data)} bytes beyond the data")
    part = data[start:end]
    return (binascii.a2b_base64(part, strict_mode=True)[:size] if is_base64 else part), end


def _unpacked(decompressor: Any, packed: bytes, size: int) -> bytes:
    """A block, decompressed. One byte more than wanted is asked for: only then is the checksum at the end read, and a longer block seen."""
    unpacked: bytes = decompressor.decompress(packed, size + 1)
    if not decompressor.eof and len(unpacked) <= size:
        raise ValueError(f"a block of {len(packed)} bytes is cut short")
    return unpacked


def _unlz4(packed: bytes, size: int) -> bytes:
    """VTK decodes these blocks safely, and no other library that this package needs does."""
    from vtkmodules.vtkIOCore import vtkLZ4DataCompressor

    if size > LZ4_RATIO * len(packed):
        raise ValueError(f"a block of {len(packed)} bytes cannot hold {size}")
    unpacked = np.empty(size, dtype=np.uint8)
    with vtk_messages():
        written = vtkLZ4DataCompressor().Uncompress(packed, len(packed), unpacked, size)  # type: ignore[call-overload]
    return unpacked[:written].tobytes()


DECOMPRESSORS: dict[str, Callable[[bytes, int], bytes] | None] = {
    "none": None,
    "vtkZLibDataCompressor": lambda packed, size: _unpacked(zlib.decompressobj(), packed, size),
    "vtkLZMADataCompressor": lambda packed, size: _unpacked(lzma.LZMADecompressor(memlimit=LZMA_MEMORY), packed, size),
    "vtkLZ4DataCompressor": _unlz4,
}


def _choice(element: Element, name: str, known: Any, default: str) -> str:
    value = element.get(name, default)
    if value not in known:
        raise ValueError(f"{element.tag[:40]} has {name} {_shown(value)}, wanted {' or '.join(known)}")
    return value


def _count(element: Element, name: str, default: str | None = None) -> int:
    text = element.get(name, default)
    if text is None or not re.fullmatch(rf"\s*\d{{1,{LONGEST_COUNT}}}\s*", text):
        raise ValueError(f"{element.tag[:40]} has {name} {_shown(text)}, wanted a whole number")
    return int(text)


def _shown(text: str | None) -> str:
    """A value of the file as messages quote it."""
    return "missing" if text is None else inputs.shown(text)
