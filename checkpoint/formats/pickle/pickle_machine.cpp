#include <checkpoint/formats/pickle/pickle_machine.h>
#include <checkpoint/formats/pickle/pickle_opcodes.h>
#include <ddp/internal/check.h>

#include <algorithm>

namespace ddp::detail {
namespace {

using namespace pickle;

constexpr int kNewestProtocol = 5;

/// What opcodes make that are refused by name.
constexpr std::pair<unsigned char, const char*> kRefused[] = {
    {kBinBytes, "bytes"},
    {kShortBinBytes, "bytes"},
    {kBinBytes8, "bytes"},
    {kByteArray8, "a bytearray"},
    {kEmptySet, "a set"},
    {kAddItems, "a set"},
    {kFrozenSet, "a frozenset"},
    {kLong4, "an integer of more than 64 bits"},
    {kNewObjEx, "an object of a class"},
    {kInst, "an object of a class"},
    {kObj, "an object of a class"},
    {kExt1, "an object of copyreg's extension registry"},
    {kExt2, "an object of copyreg's extension registry"},
    {kExt4, "an object of copyreg's extension registry"},
    {kPersId, "a persistent id that is text"}};

} // namespace

PickleMachine::PickleMachine(
    std::string_view pickle,
    PickleHeap& heap,
    PickleCalls& calls)
    : bytes_(pickle), heap_(heap), calls_(calls) {}

PickleValue PickleMachine::run() {
  for (;;) {
    const auto start = bytes_.position();
    const auto opcode = bytes_.take_number<unsigned char>();
    if (opcode == kStop) {
      break;
    }
    try {
      step(opcode);
    } catch (const c10::Error& error) {
      DDP_THROW(Error, "at byte {}: {}", start, error.what_without_backtrace());
    }
  }
  DDP_CHECK(
      bytes_.position() == bytes_.size(),
      "{} bytes follow its end",
      bytes_.size() - bytes_.position());
  const auto result = pop();
  DDP_CHECK(
      stack_.empty() && marks_.empty(),
      "it leaves {} values behind, expected one",
      stack_.size() + 1);
  return result;
}

void PickleMachine::step(unsigned char opcode) {
  const bool known = push_constant(opcode) || push_number(opcode) ||
      push_text(opcode) || make_tuple(opcode) || fill(opcode) ||
      use_memo(opcode) || use_global(opcode);
  if (!known) {
    refuse(opcode);
  }
}

bool PickleMachine::push_constant(unsigned char opcode) {
  switch (opcode) {
    case kProto: {
      const int protocol = bytes_.take_number<unsigned char>();
      DDP_CHECK(
          protocol <= kNewestProtocol,
          "pickle protocol {}, expected at most {}",
          protocol,
          kNewestProtocol);
      return true;
    }
    case kFrame: // a hint about how to read
      bytes_.take_number<uint64_t>();
      return true;
    case kNone:
      push({});
      return true;
    case kNewTrue:
    case kNewFalse:
      push(opcode == kNewTrue);
      return true;
    case kEmptyList:
      push(heap_.create(PickleList{}));
      return true;
    case kEmptyDict:
      push(heap_.create(PickleDict{}));
      return true;
    case kMark:
      heap_.charge(sizeof(size_t));
      marks_.push_back(stack_.size());
      return true;
    default:
      return false;
  }
}

bool PickleMachine::push_number(unsigned char opcode) {
  switch (opcode) {
    case kBinInt:
      push(int64_t{bytes_.take_number<int32_t>()});
      return true;
    case kBinInt1:
      push(int64_t{bytes_.take_number<uint8_t>()});
      return true;
    case kBinInt2:
      push(int64_t{bytes_.take_number<uint16_t>()});
      return true;
    case kLong1:
      push(bytes_.take_long());
      return true;
    case kBinFloat:
      push(bytes_.take_double());
      return true;
    default:
      return false;
  }
}

bool PickleMachine::push_text(unsigned char opcode) {
  uint64_t bytes = 0;
  switch (opcode) {
    case kShortBinString:
    case kShortBinUnicode:
      bytes = bytes_.take_number<uint8_t>();
      break;
    case kBinString: // its count is signed, and then too large
    case kBinUnicode:
      bytes = bytes_.take_number<uint32_t>();
      break;
    case kBinUnicode8:
      bytes = bytes_.take_number<uint64_t>();
      break;
    default:
      return false;
  }
  const auto text = bytes_.take(bytes);
  heap_.charge(bytes);
  push(heap_.create(std::string(text)));
  return true;
}

bool PickleMachine::make_tuple(unsigned char opcode) {
  PickleTuple tuple;
  switch (opcode) {
    case kEmptyTuple:
      break;
    case kTuple1:
    case kTuple2:
    case kTuple3:
      tuple.items = pop_many(opcode - kTuple1 + 1);
      break;
    case kTuple:
      tuple.items = pop_to_mark();
      break;
    default:
      return false;
  }
  push(heap_.create(std::move(tuple)));
  return true;
}

bool PickleMachine::fill(unsigned char opcode) {
  switch (opcode) {
    case kAppend:
      append(pop_many(1));
      return true;
    case kAppends:
      append(pop_to_mark());
      return true;
    case kSetItem:
      set_items(pop_many(2));
      return true;
    case kSetItems:
      set_items(pop_to_mark());
      return true;
    case kBuild:
      build();
      return true;
    default:
      return false;
  }
}

bool PickleMachine::use_memo(unsigned char opcode) {
  switch (opcode) {
    case kBinPut:
      memoize(bytes_.take_number<uint8_t>());
      return true;
    case kLongBinPut:
      memoize(bytes_.take_number<uint32_t>());
      return true;
    case kMemoize:
      memoize(memo_count_);
      return true;
    case kBinGet:
      push_memo(bytes_.take_number<uint8_t>());
      return true;
    case kLongBinGet:
      push_memo(bytes_.take_number<uint32_t>());
      return true;
    default:
      return false;
  }
}

bool PickleMachine::use_global(unsigned char opcode) {
  switch (opcode) {
    case kGlobal: {
      const auto module = bytes_.take_line();
      push(calls_.global(module, bytes_.take_line()));
      return true;
    }
    case kStackGlobal: {
      const auto names = pop_many(2);
      const auto* module = content_of<std::string>(names[0]);
      const auto* name = content_of<std::string>(names[1]);
      DDP_CHECK(
          module != nullptr && name != nullptr,
          "a name of Python's is not a string but {} and {}",
          kind_of(names[0]),
          kind_of(names[1]));
      push(calls_.global(*module, *name));
      return true;
    }
    case kReduce: {
      const auto values = pop_many(2);
      push(calls_.call(values[0], values[1]));
      return true;
    }
    case kNewObj: {
      const auto values = pop_many(2);
      push(calls_.create(values[0], values[1]));
      return true;
    }
    case kBinPersId:
      push(calls_.storage(pop()));
      return true;
    default:
      return false;
  }
}

void PickleMachine::refuse(unsigned char opcode) const {
  for (const auto& [refused, thing] : kRefused) {
    DDP_CHECK(
        opcode != refused,
        "it has {}, which this library does not read; save tensors, numbers, "
        "strings, lists, tuples and dicts of them alone",
        thing);
  }
  DDP_THROW(
      Error,
      "it has the opcode {}, which torch.save does not write",
      static_cast<int>(opcode));
}

void PickleMachine::push(PickleValue value) {
  if (stack_.size() == stack_.capacity()) {
    heap_.charge((stack_.size() + 1) * sizeof(PickleValue));
  }
  stack_.push_back(value);
}

// Values below a mark belong to what is not complete yet.
std::vector<PickleValue> PickleMachine::pop_many(size_t count) {
  const auto floor = marks_.empty() ? 0 : marks_.back();
  DDP_CHECK(
      stack_.size() - floor >= count,
      "the stack has {} values, the opcode needs {}",
      stack_.size() - floor,
      count);
  const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
  std::vector<PickleValue> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  return items;
}

std::vector<PickleValue> PickleMachine::pop_to_mark() {
  DDP_CHECK(!marks_.empty(), "there is no mark on the stack");
  auto items = pop_many(stack_.size() - marks_.back());
  marks_.pop_back();
  return items;
}

PickleValue PickleMachine::pop() {
  return pop_many(1)[0];
}

PickleValue& PickleMachine::top() {
  const auto floor = marks_.empty() ? 0 : marks_.back();
  DDP_CHECK(stack_.size() > floor, "the stack is empty");
  return stack_.back();
}

// Pickles number what they memoize from 0, so that no index is larger than the
// pickle.
void PickleMachine::memoize(uint64_t index) {
  DDP_CHECK(
      index < bytes_.size(),
      "it numbers a value {}, but has only {} bytes",
      index,
      bytes_.size());
  if (index >= memo_.size()) {
    const auto size = std::max<uint64_t>(2 * memo_.size(), index + 1);
    heap_.charge((size - memo_.size()) * sizeof(PickleValue));
    memo_.resize(size);
    memo_set_.resize(size);
  }
  memo_count_ += memo_set_[index] ? 0 : 1;
  memo_[index] = top();
  memo_set_[index] = true;
}

void PickleMachine::push_memo(uint64_t index) {
  DDP_CHECK(
      index < memo_.size() && memo_set_[index],
      "it refers to value {}, which it has not had",
      index);
  push(memo_[index]);
}

void PickleMachine::append(std::vector<PickleValue> items) {
  if (content_of<PickleUnknown>(top())) {
    return;
  }
  auto* list = content_of<PickleList>(top());
  DDP_CHECK(list != nullptr, "it appends to {}, not to a list", kind_of(top()));
  heap_.charge(items.size() * sizeof(PickleValue));
  list->items.insert(list->items.end(), items.begin(), items.end());
}

void PickleMachine::set_items(std::vector<PickleValue> items) {
  if (content_of<PickleUnknown>(top())) {
    return;
  }
  auto* dict = content_of<PickleDict>(top());
  DDP_CHECK(
      dict != nullptr, "it sets items of {}, not of a dict", kind_of(top()));
  DDP_CHECK(items.size() % 2 == 0, "a key of a dict has no value");
  heap_.charge(items.size() * sizeof(PickleValue));
  dict->items.insert(dict->items.end(), items.begin(), items.end());
}

// Attributes: of an OrderedDict they are the `_metadata` of a state_dict, of
// one of LibTorch's archives its items.
void PickleMachine::build() {
  const auto state = pop();
  if (content_of<PickleUnknown>(top())) {
    return;
  }
  auto* dict = content_of<PickleDict>(top());
  DDP_CHECK(dict != nullptr, "it sets the attributes of {}", kind_of(top()));
  if (dict->archive) {
    const auto* attributes = content_of<PickleDict>(state);
    DDP_CHECK(
        attributes != nullptr && attributes != dict,
        "the attributes of an archive are {}",
        kind_of(state));
    set_items(attributes->items);
  }
}

} // namespace ddp::detail
