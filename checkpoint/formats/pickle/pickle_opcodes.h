#pragma once

// The opcodes of Python's pickle protocol 2 to 5 that are read or written, and
// those that are refused with more than their number.
namespace ddp::detail::pickle {

enum Opcode : unsigned char {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,

  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kPersId = 'P',
  kInst = 'i',
  kObj = 'o',
  kExt1 = 0x82,
  kExt2 = 0x83,
  kExt4 = 0x84,
  kLong4 = 0x8b,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kByteArray8 = 0x96,
};

/// What an opcode makes that is refused by name, "a set"; null for others.
const char* refused_thing(unsigned char opcode);

} // namespace ddp::detail::pickle
