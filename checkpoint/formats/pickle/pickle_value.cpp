#include <c10/util/Exception.h>
#include <checkpoint/formats/pickle/pickle_globals.h>
#include <checkpoint/formats/pickle/pickle_value.h>

namespace ddp::detail {
namespace {

struct KindOfContent {
  std::string operator()(const std::string&) const {
    return "a string";
  }
  std::string operator()(const PickleList&) const {
    return "a list";
  }
  std::string operator()(const PickleTuple&) const {
    return "a tuple";
  }
  std::string operator()(const PickleDict&) const {
    return "a dict";
  }
  std::string operator()(const PickleGlobal* global) const {
    return "'" + global->name + "'";
  }
  std::string operator()(const PickleUnknown& unknown) const {
    return "'" + unknown.name + "'";
  }
  std::string operator()(const PickleStorage&) const {
    return "a storage";
  }
  std::string operator()(const at::Tensor&) const {
    return "a tensor";
  }
};

struct KindOfValue {
  std::string operator()(std::monostate) const {
    return "None";
  }
  std::string operator()(bool) const {
    return "a bool";
  }
  std::string operator()(int64_t) const {
    return "an integer";
  }
  std::string operator()(double) const {
    return "a float";
  }
  std::string operator()(const PickleObject* object) const {
    return std::visit(KindOfContent{}, object->content);
  }
};

} // namespace

void PickleHeap::charge(uint64_t bytes) {
  TORCH_CHECK(
      bytes <= left_,
      "its values need far more memory than the file has bytes");
  left_ -= bytes;
}

std::string kind_of(const PickleValue& value) {
  return std::visit(KindOfValue{}, value);
}

} // namespace ddp::detail
