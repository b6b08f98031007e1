#include <checkpoint/formats/pickle/allowed_globals.h>
#include <checkpoint/formats/pickle/pickle_bytes.h>
#include <checkpoint/formats/pickle/pickle_reader.h>
#include <checkpoint/formats/pickle/pickle_tree.h>
#include <checkpoint/formats/pickle/pickle_value.h>
#include <ddp/internal/check.h>

#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <algorithm>
#include <exception>

namespace ddp::detail {
namespace {

using Op = torch::jit::PickleOpCode;

constexpr int kNewestProtocol = 5;
constexpr const char* kLargeInteger = "an integer of more than 64 bits";
constexpr auto kByteArray8 = static_cast<Op>(0x96); // LibTorch's list ends at 4

/// Opcodes that are rejected, and the results that the errors name. Unless
/// `strict`, the first nine make unknown objects.
constexpr std::pair<Op, const char*> kRejected[] = {
    {Op::BINBYTES, "bytes"},
    {Op::SHORT_BINBYTES, "bytes"},
    {Op::BINBYTES8, "bytes"},
    {kByteArray8, "a bytearray"},
    {Op::EMPTY_SET, "a set"},
    {Op::ADDITEMS, "a set"},
    {Op::FROZENSET, "a frozenset"},
    {Op::LONG4, kLargeInteger},
    {Op::NEWOBJ_EX, "an instance of a class"},
    {Op::INST, "an instance of a class"},
    {Op::OBJ, "an instance of a class"},
    {Op::EXT1, "an object from copyreg's extension registry"},
    {Op::EXT2, "an object from copyreg's extension registry"},
    {Op::EXT4, "an object from copyreg's extension registry"},
    {Op::PERSID, "a persistent id that is text"}};

/// Runs the opcodes of a pickle.
class Unpickler {
 public:
  Unpickler(
      std::string_view pickle,
      PickleArena& arena,
      AllowedGlobals& globals,
      bool strict)
      : bytes_(pickle), arena_(arena), globals_(globals), strict_(strict) {}

  /// Returns the value that the pickle leaves on the stack; its objects are in
  /// the arena.
  PickleValue run() {
    for (;;) {
      const auto start = bytes_.position();
      const auto opcode = take<Op>();
      if (opcode == Op::STOP) {
        break;
      }
      try {
        step(opcode);
      } catch (const c10::Error& error) {
        DDP_THROW(
            Error, "at byte {}: {}", start, error.what_without_backtrace());
      }
    }
    DDP_CHECK(
        bytes_.position() == bytes_.size(),
        "{} bytes follow its end",
        bytes_.size() - bytes_.position());
    const auto result = pop();
    DDP_CHECK(
        stack_.empty() && marks_.empty(),
        "it leaves {} values on the stack, expected one",
        stack_.size() + 1);
    return result;
  }

 private:
  struct Handlers;

  void step(Op opcode);

  void check_protocol() {
    const int protocol = take<uint8_t>();
    DDP_CHECK(
        protocol <= kNewestProtocol,
        "pickle protocol {}, expected at most {}",
        protocol,
        kNewestProtocol);
  }

  void mark() {
    arena_.charge(sizeof(size_t));
    marks_.push_back(stack_.size());
  }

  void push_unknown(const char* thing) {
    push(arena_.create(PickleUnknown{thing}));
  }

  void push_long() {
    if (const auto value = bytes_.take_long()) {
      push(*value);
    } else {
      reject(kLargeInteger);
      push_unknown(kLargeInteger);
    }
  }

  void reject(const char* thing) const {
    DDP_CHECK(
        !strict_,
        "it has {}, which this library does not read; save only tensors, "
        "numbers, strings, and lists, tuples and dicts of these",
        thing);
  }

  /// Skips the operands of a rejected opcode.
  bool skip(Op opcode) {
    switch (opcode) {
      case Op::SHORT_BINBYTES:
        return bytes_.take(take<uint8_t>()), true;
      case Op::BINBYTES:
      case Op::LONG4:
        return bytes_.take(take<uint32_t>()), true;
      case Op::BINBYTES8:
        return bytes_.take(take<uint64_t>()), true;
      case Op::EMPTY_SET:
        return true;
      case Op::FROZENSET:
        return pop_to_mark(), true;
      case Op::ADDITEMS: // the set itself
        return pop_to_mark(), pop(), true;
      case Op::NEWOBJ_EX:
        return pop_many(3), true;
      default:
        return opcode == kByteArray8 && (bytes_.take(take<uint64_t>()), true);
    }
  }

  void push_text(uint64_t bytes) {
    const auto text = bytes_.take(bytes);
    arena_.charge(bytes);
    push(arena_.create(std::string(text)));
  }

  void push_tuple(std::vector<PickleValue> items) {
    push(arena_.create(PickleTuple{std::move(items)}));
  }

  void push_global() {
    const auto module = bytes_.take_line();
    push(globals_.find_class(module, bytes_.take_line()));
  }

  void push_stack_global() {
    const auto names = pop_many(2);
    const auto* module = content_of<std::string>(names[0]);
    const auto* name = content_of<std::string>(names[1]);
    DDP_CHECK(
        module != nullptr && name != nullptr,
        "the module and name of a global must be strings, but are {} and {}",
        kind_of(names[0]),
        kind_of(names[1]));
    push(globals_.find_class(*module, *name));
  }

  void push_result(AllowedGlobals::Function function) {
    const auto values = pop_many(2);
    push((globals_.*function)(values[0], values[1]));
  }

  template <typename Number>
  Number take() {
    return bytes_.take_number<Number>();
  }

  void push(PickleValue value) {
    if (stack_.size() == stack_.capacity()) {
      arena_.charge((stack_.size() + 1) * sizeof(PickleValue));
    }
    stack_.push_back(value);
  }

  PickleValue pop() {
    return pop_many(1)[0];
  }

  PickleValue& top() {
    const auto floor = marks_.empty() ? 0 : marks_.back();
    DDP_CHECK(stack_.size() > floor, "the stack is empty");
    return stack_.back();
  }

  // Values below a mark belong to incomplete containers.
  std::vector<PickleValue> pop_many(size_t count) {
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

  std::vector<PickleValue> pop_to_mark() {
    DDP_CHECK(!marks_.empty(), "the stack has no mark");
    auto items = pop_many(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }

  // Pickles number memoized values from 0, so no index exceeds the pickle's
  // size.
  void memoize(uint64_t index) {
    DDP_CHECK(
        index < bytes_.size(),
        "memo index {} exceeds the pickle's size of {} bytes",
        index,
        bytes_.size());
    if (index >= memo_.size()) {
      const auto size = std::max<uint64_t>(2 * memo_.size(), index + 1);
      arena_.charge((size - memo_.size()) * sizeof(PickleValue));
      memo_.resize(size);
      memo_set_.resize(size);
    }
    memo_count_ += memo_set_[index] ? 0 : 1;
    memo_[index] = top();
    memo_set_[index] = true;
  }

  void push_memo(uint64_t index) {
    DDP_CHECK(
        index < memo_.size() && memo_set_[index],
        "memo index {} has no value",
        index);
    push(memo_[index]);
  }

  void append(std::vector<PickleValue> items) {
    if (content_of<PickleUnknown>(top())) {
      return;
    }
    auto* list = content_of<PickleList>(top());
    DDP_CHECK(
        list != nullptr, "it appends to {}, not to a list", kind_of(top()));
    arena_.charge(items.size() * sizeof(PickleValue));
    list->items.insert(list->items.end(), items.begin(), items.end());
  }

  void set_items(std::vector<PickleValue> items) {
    if (content_of<PickleUnknown>(top())) {
      return;
    }
    auto* dict = content_of<PickleDict>(top());
    DDP_CHECK(
        dict != nullptr, "it sets items of {}, not of a dict", kind_of(top()));
    DDP_CHECK(items.size() % 2 == 0, "a key of a dict has no value");
    arena_.charge(items.size() * sizeof(PickleValue));
    dict->items.insert(dict->items.end(), items.begin(), items.end());
  }

  // Sets attributes. Those of an OrderedDict are the `_metadata` of a
  // state_dict, which is dropped; those of a LibTorch archive are its items.
  void build() {
    const auto state = pop();
    if (content_of<PickleUnknown>(top())) {
      return;
    }
    auto* dict = content_of<PickleDict>(top());
    DDP_CHECK(dict != nullptr, "cannot set attributes of {}", kind_of(top()));
    if (dict->archive) {
      const auto* attributes = content_of<PickleDict>(state);
      DDP_CHECK(
          attributes != nullptr,
          "expected the attributes of an archive as a dict, found {}",
          kind_of(state));
      DDP_CHECK(
          attributes != dict,
          "the attributes of an archive are the archive itself");
      set_items(attributes->items);
    }
  }

  PickleBytes bytes_;
  PickleArena& arena_;
  AllowedGlobals& globals_;
  bool strict_;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_; // sizes of the stack
  std::vector<PickleValue> memo_;
  std::vector<bool> memo_set_;
  uint64_t memo_count_ = 0;
};

/// The handler of each opcode, as in `dispatch` of Python's pickle.py.
struct Unpickler::Handlers {
  using M = Unpickler;

  static constexpr std::pair<Op, void (*)(M&)> kAll[] = {
      {Op::PROTO, [](M& m) { m.check_protocol(); }},
      {Op::FRAME, [](M& m) { m.take<uint64_t>(); }}, // only a hint for reading
      {Op::NONE, [](M& m) { m.push({}); }},
      {Op::NEWTRUE, [](M& m) { m.push(true); }},
      {Op::NEWFALSE, [](M& m) { m.push(false); }},
      {Op::BININT, [](M& m) { m.push(int64_t{m.take<int32_t>()}); }},
      {Op::BININT1, [](M& m) { m.push(int64_t{m.take<uint8_t>()}); }},
      {Op::BININT2, [](M& m) { m.push(int64_t{m.take<uint16_t>()}); }},
      {Op::LONG1, [](M& m) { m.push_long(); }},
      {Op::BINFLOAT, [](M& m) { m.push(m.bytes_.take_double()); }},
      {Op::SHORT_BINSTRING, [](M& m) { m.push_text(m.take<uint8_t>()); }},
      {Op::SHORT_BINUNICODE, [](M& m) { m.push_text(m.take<uint8_t>()); }},
      // The count of this opcode is signed; a negative count becomes too large.
      {Op::BINSTRING, [](M& m) { m.push_text(m.take<uint32_t>()); }},
      {Op::BINUNICODE, [](M& m) { m.push_text(m.take<uint32_t>()); }},
      {Op::BINUNICODE8, [](M& m) { m.push_text(m.take<uint64_t>()); }},
      {Op::MARK, [](M& m) { m.mark(); }},
      {Op::EMPTY_TUPLE, [](M& m) { m.push_tuple({}); }},
      {Op::TUPLE1, [](M& m) { m.push_tuple(m.pop_many(1)); }},
      {Op::TUPLE2, [](M& m) { m.push_tuple(m.pop_many(2)); }},
      {Op::TUPLE3, [](M& m) { m.push_tuple(m.pop_many(3)); }},
      {Op::TUPLE, [](M& m) { m.push_tuple(m.pop_to_mark()); }},
      {Op::EMPTY_LIST, [](M& m) { m.push(m.arena_.create(PickleList{})); }},
      {Op::APPEND, [](M& m) { m.append(m.pop_many(1)); }},
      {Op::APPENDS, [](M& m) { m.append(m.pop_to_mark()); }},
      {Op::EMPTY_DICT, [](M& m) { m.push(m.arena_.create(PickleDict{})); }},
      {Op::SETITEM, [](M& m) { m.set_items(m.pop_many(2)); }},
      {Op::SETITEMS, [](M& m) { m.set_items(m.pop_to_mark()); }},
      {Op::BUILD, [](M& m) { m.build(); }},
      {Op::BINPUT, [](M& m) { m.memoize(m.take<uint8_t>()); }},
      {Op::LONG_BINPUT, [](M& m) { m.memoize(m.take<uint32_t>()); }},
      {Op::MEMOIZE, [](M& m) { m.memoize(m.memo_count_); }},
      {Op::BINGET, [](M& m) { m.push_memo(m.take<uint8_t>()); }},
      {Op::LONG_BINGET, [](M& m) { m.push_memo(m.take<uint32_t>()); }},
      {Op::GLOBAL, [](M& m) { m.push_global(); }},
      {Op::STACK_GLOBAL, [](M& m) { m.push_stack_global(); }},
      {Op::REDUCE, [](M& m) { m.push_result(&AllowedGlobals::reduce); }},
      {Op::NEWOBJ, [](M& m) { m.push_result(&AllowedGlobals::new_object); }},
      {Op::BINPERSID,
       [](M& m) { m.push(m.globals_.persistent_load(m.pop())); }}};
};

void Unpickler::step(Op opcode) {
  for (const auto& [known, handle] : Handlers::kAll) {
    if (opcode == known) {
      return handle(*this);
    }
  }
  for (const auto& [rejected, thing] : kRejected) {
    if (opcode == rejected) {
      reject(thing);
      if (skip(opcode)) {
        return push_unknown(thing);
      }
    }
  }
  DDP_THROW(
      Error,
      "it has the opcode {}, which torch.save does not write",
      static_cast<int>(static_cast<unsigned char>(opcode)));
}

} // namespace

c10::IValue read_pickle(
    std::string_view pickle,
    uint64_t budget,
    const LoadStorage& load,
    bool strict,
    std::vector<std::string>* omitted) {
  std::exception_ptr not_loaded; // an error outside the pickle
  const auto load_or_keep = [&](const std::string& key) {
    try {
      return load(key);
    } catch (...) {
      not_loaded = std::current_exception();
      throw;
    }
  };
  try {
    PickleArena arena(budget);
    AllowedGlobals globals(arena, load_or_keep, strict);
    Unpickler unpickler(pickle, arena, globals, strict);
    return make_tree(unpickler.run(), arena, strict, omitted);
  } catch (const c10::Error& error) {
    if (not_loaded) {
      std::rethrow_exception(not_loaded);
    }
    DDP_THROW(Error, "its pickle: {}", error.what_without_backtrace());
  }
}

} // namespace ddp::detail
