"""Whether a VTK XML file holds what its header promises: VTK ends the whole process on some that do not, and reads others as zeros.

Data in: the bytes of a .vtu or .vtp file. Data out: nothing, or ValueError with one sentence.
Each array in the appended raw data starts with [blocks, block size, last block size, compressed sizes...] (compressed) or [size];
the sizes must fit into the file, and give as many values as the piece has points or cells.
Source: https://docs.vtk.org/en/latest/vtk_file_formats/vtkxml_file_format.html.
"""

from xml.etree import ElementTree

import numpy as np

ITEM_SIZES = {f"{sign}Int{bits}": bits // 8 for sign in ("", "U") for bits in (8, 16, 32, 64)} | {"Float32": 4, "Float64": 8}
ZLIB_RATIO = 1100
"""No compressor of VTK makes data smaller by more than this factor (zlib: 1032, lz4: 255)."""
CELLS = ("Verts", "Lines", "Polys", "Strips")


def refuse_corrupt(content: bytes) -> None:
    """ValueError if the file is cut short, is no XML, or an array in it is not as long as its header says."""
    if not content.rstrip().endswith(b"</VTKFile>"):
        raise ValueError("it is empty, truncated or no VTK XML file, wanted one that ends in </VTKFile>")
    head, tag, tail = content.partition(b"<AppendedData")
    try:
        root = ElementTree.fromstring(head + b"</VTKFile>" if tag else content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ValueError(f"its header is no XML ({error}), wanted a VTK XML file") from None
    attributes, _, appended = tail.partition(b">")
    marker, appended = appended.lstrip()[:1], appended.lstrip()[1:]
    if tag and marker != b"_":
        raise ValueError("its appended data do not begin with an underscore, the file is corrupt")
    raw = appended if b"raw" in attributes else None
    try:
        for piece in root.iter("Piece"):
            for group in piece:
                for array in group:
                    _check(array, _tuples(piece, group.tag, array), root, raw, len(content))
        for group in root.iter("FieldData"):
            for array in group:
                _check(array, None, root, raw, len(content))
    except (KeyError, TypeError, OverflowError):
        raise ValueError("its header is corrupt, wanted counts, types and offsets of all arrays") from None


def _tuples(piece: ElementTree.Element, group: str, array: ElementTree.Element) -> int | None:
    """Rows that an array must have; None where only VTK knows."""
    if array.tag != "DataArray":
        return None
    if group in ("Points", "PointData"):
        return _count(piece.attrib["NumberOfPoints"])
    if group == "CellData":
        return sum(_count(piece.get(f"NumberOf{kind}", "0")) for kind in ("Cells", *CELLS))
    if group in ("Cells", *CELLS) and array.get("Name") in ("offsets", "types"):
        return _count(piece.attrib[f"NumberOf{group}"])
    return None


def _check(array: ElementTree.Element, tuples: int | None, root: ElementTree.Element, raw: bytes | None, size: int) -> None:
    name = array.get("Name")
    columns = _count(array.get("NumberOfComponents", "1"))
    rows = _count(array.get("NumberOfTuples", "0")) if tuples is None else tuples
    if not (0 <= rows <= ZLIB_RATIO * size and 1 <= columns <= ZLIB_RATIO):
        raise ValueError(f"array {name!r} has {rows} rows of {columns} values, more than the file can hold")
    if raw is None or array.get("format") != "appended":
        return
    word = np.dtype({"UInt32": "u4", "UInt64": "u8"}[root.get("header_type", "UInt32")])
    word = word.newbyteorder("<" if root.get("byte_order", "LittleEndian") == "LittleEndian" else ">")
    start = _count(array.attrib["offset"])
    if not 0 <= start <= len(raw) - word.itemsize:
        raise ValueError(f"array {name!r} starts outside the file")
    left = (len(raw) - start) // word.itemsize
    first = int(np.frombuffer(raw, word, 1, start)[0])
    if root.get("compressor") is None:
        fits, total = first <= len(raw) - start - word.itemsize, first
    elif first == 0:
        fits, total = True, 0
    else:
        fits = first + 3 <= left
        blocks = np.frombuffer(raw, word, first + 3 if fits else 1, start).tolist()
        total = (first - 1) * blocks[1] + (blocks[2] or blocks[1]) if fits else 0
        packed = sum(blocks[3:])
        fits = fits and packed <= len(raw) - start and total <= ZLIB_RATIO * packed and blocks[2] <= blocks[1]
        fits = fits and blocks[1] <= ZLIB_RATIO * size
    if not fits:
        raise ValueError(f"array {name!r} is longer than the file, which is truncated or corrupt")
    if tuples is not None and total != tuples * columns * ITEM_SIZES[array.attrib["type"]]:
        raise ValueError(f"array {name!r} has {total} bytes, wanted {tuples} rows of {columns} values of type {array.get('type')}")


def _count(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"its header has a count {text.strip()!r}, wanted a whole number")
    return int(text)
