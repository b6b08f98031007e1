#pragma once

#include <checkpoint/formats/pickle/allowed_globals.h>
#include <checkpoint/formats/pickle/pickle_bytes.h>
#include <checkpoint/formats/pickle/pickle_value.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

namespace ddp::detail {

/// Runs the opcodes of a pickle.
class Unpickler {
 public:
  Unpickler(
      std::string_view pickle,
      PickleArena& arena,
      AllowedGlobals& globals);

  /// What the pickle leaves on the stack; its objects live in the arena.
  PickleValue run();

 private:
  struct Handlers;

  void step(torch::jit::PickleOpCode opcode);
  void check_protocol();
  void mark();
  void push_text(uint64_t bytes);
  void push_tuple(std::vector<PickleValue> items);
  void push_global();
  void push_stack_global();
  void push_result(AllowedGlobals::Function function);

  template <typename Number>
  Number take() {
    return bytes_.take_number<Number>();
  }
  void push(PickleValue value);
  PickleValue pop();
  PickleValue& top();
  std::vector<PickleValue> pop_many(size_t count);
  std::vector<PickleValue> pop_to_mark();
  void memoize(uint64_t index);
  void push_memo(uint64_t index);
  void append(std::vector<PickleValue> items);
  void set_items(std::vector<PickleValue> items);
  void build();

  PickleBytes bytes_;
  PickleArena& arena_;
  AllowedGlobals& globals_;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_; // sizes of the stack
  std::vector<PickleValue> memo_;
  std::vector<bool> memo_set_;
  uint64_t memo_count_ = 0;
};

} // namespace ddp::detail
