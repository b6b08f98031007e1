#include <checkpoint/formats/pickle/pickle_opcodes.h>

namespace ddp::detail::pickle {

const char* refused_thing(unsigned char opcode) {
  switch (opcode) {
    case kBinBytes:
    case kShortBinBytes:
    case kBinBytes8:
      return "bytes";
    case kByteArray8:
      return "a bytearray";
    case kEmptySet:
    case kAddItems:
      return "a set";
    case kFrozenSet:
      return "a frozenset";
    case kLong4:
      return "an integer of more than 64 bits";
    case kNewObjEx:
    case kInst:
    case kObj:
      return "an object of a class";
    case kExt1:
    case kExt2:
    case kExt4:
      return "an object of copyreg's extension registry";
    case kPersId:
      return "a persistent id that is text";
    default:
      return nullptr;
  }
}

} // namespace ddp::detail::pickle
