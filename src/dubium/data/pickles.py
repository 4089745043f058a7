"""The pickles of CIFAR, read opcode by opcode: nothing is unpickled, and no name of a file's is ever looked up.

Those files are dicts of texts, whole numbers, lists and arrays of bytes. Python's `pickletools` splits a file into
opcodes; here are the few that such dicts need, and any other is refused.
"""

import io
import pickletools
from typing import Any

import numpy as np
from numpy.typing import NDArray

OPERATIONS = 2_000_000  # CIFAR-100's training file has 400 thousand
NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1")
TEXTS = ("BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES")
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
NDARRAY, DTYPE, ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"


class PickleError(ValueError):
    """An opcode, a name or a value that no file of CIFAR's has."""


class Name(str):
    """What a GLOBAL opcode names; it stays a text."""


class ByteArray:
    """An array of bytes; without values until its shape and bytes have been read."""

    values: NDArray[np.uint8] | None = None


class ByteType:
    """The type of such an array."""


class Mark:
    """Where a list, a tuple or some items begin on the stack."""


def parse_pickle(content: bytes) -> Any:
    """The value of a pickle that holds dicts, lists, tuples, texts, whole numbers and `ByteArray`s only."""
    machine = PickleMachine(4 * len(content))
    for count, (operation, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
        if count > OPERATIONS:
            raise PickleError("more opcodes than any file of CIFAR's has")
        if operation.name == "STOP":
            (value,) = machine.stack
            return value
        machine.step(operation.name, argument)
    raise PickleError("no end")


class PickleMachine:
    """The stack and the memo of a pickle; at most `most` bytes are made for arrays."""

    def __init__(self, most: int) -> None:
        self.stack, self.memo, self.left = list[Any](), dict[int, Any](), most

    def step(self, name: str, argument: Any) -> None:
        """Do what one opcode says."""
        if name in CONSTANTS or name in NUMBERS or name in TEXTS:
            self.stack.append(CONSTANTS.get(name, argument))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "MARK"):
            self.stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "MARK": Mark}[name]())
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            self.stack.append(tuple(self.pop_values(None if name == "TUPLE" else int(name[-1]))))
        elif name in ("APPEND", "APPENDS"):
            values = self.pop_values(1 if name == "APPEND" else None)
            self.top(list).extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = self.pop_values(2 if name == "SETITEM" else None)
            if not all(type(key) is str for key in values[::2]):
                raise PickleError("a key that is not a text")
            self.top(dict).update(zip(values[::2], values[1::2], strict=True))
        elif name == "GLOBAL":
            self.stack.append(known_name(argument))
        elif name == "REDUCE":
            function, arguments = self.pop_values(2)
            self.stack.append(self.call(function, arguments))
        elif name == "BUILD":
            (state,) = self.pop_values(1)
            self.build(self.stack[-1], state)
        elif name != "PROTO":
            raise PickleError(f"the opcode {name}, which no CIFAR file has")

    def pop_values(self, count: int | None) -> list[Any]:
        """Take so many values from the stack, or all above the last mark."""
        if count is None:
            at = next(i for i in range(len(self.stack) - 1, -1, -1) if isinstance(self.stack[i], Mark))
            values = self.stack[at + 1 :]
            del self.stack[at:]
            return values
        values = self.stack[-count:]
        if len(values) < count or any(isinstance(value, Mark) for value in values):
            raise PickleError("too few values for an opcode")
        del self.stack[-count:]
        return values

    def top(self, kind: type) -> Any:
        """The value on top of the stack, which must be of one kind."""
        if type(self.stack[-1]) is not kind:
            raise PickleError(f"a {type(self.stack[-1]).__name__} where a {kind.__name__} was expected")
        return self.stack[-1]

    def call(self, function: Any, arguments: Any) -> Any:
        """What the three functions of NumPy and Python would return."""
        if not isinstance(function, Name) or type(arguments) is not tuple:
            raise PickleError("a call of what is not a function")
        if function in RECONSTRUCT:
            return ByteArray()
        if function == DTYPE:
            if arguments[0] not in ("u1", "uint8", "|u1"):
                raise PickleError(f"an array of {arguments[0]!r} instead of bytes")
            return ByteType()
        if function == ENCODE:  # protocol 2 of Python 3 writes bytes as a call to this
            return self.encode(arguments[0])
        raise PickleError(f"a call of {function}")

    def build(self, made: Any, state: Any) -> None:
        """Give an array its shape and bytes; a type has nothing to give."""
        if isinstance(made, ByteType):
            return
        if not isinstance(made, ByteArray) or type(state) is not tuple:
            raise PickleError(f"a state for a {type(made).__name__}")
        _version, shape, dtype, fortran, content = state
        if not isinstance(dtype, ByteType) or fortran:
            raise PickleError("an array that is not of bytes in C order")
        raw = bytearray(self.encode(content) if isinstance(content, str) else self.reserve(content))
        made.values = np.frombuffer(raw, np.uint8).reshape(shape)

    def encode(self, text: Any) -> bytes:
        """The bytes of a text, one for each character."""
        if type(text) is not str:
            raise PickleError("bytes that are not written as a text")
        return self.reserve(text.encode("latin1"))

    def reserve(self, content: Any) -> bytes:
        """The same bytes, counted: a short file may name the same long text again and again."""
        if type(content) is not bytes:
            raise PickleError("an array without bytes")
        self.left -= len(content)
        if self.left < 0:
            raise PickleError("more bytes than the file has")
        return content


def known_name(argument: str) -> Name:
    """What a GLOBAL opcode names, which must be one of the few that CIFAR's files name."""
    if argument not in (*RECONSTRUCT, NDARRAY, DTYPE, ENCODE):
        raise PickleError(f"it asks for {argument.replace(' ', '.')}, which no CIFAR file does")
    return Name(argument)
