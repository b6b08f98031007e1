#pragma once

#include <checkpoint/formats/pickle/pickle_bytes.h>
#include <checkpoint/formats/pickle/pickle_calls.h>
#include <checkpoint/formats/pickle/pickle_value.h>

namespace ddp::detail {

/// Runs the opcodes of a pickle.
class PickleMachine {
 public:
  PickleMachine(std::string_view pickle, PickleHeap& heap, PickleCalls& calls);

  /// What the pickle leaves on the stack; its objects live in the heap.
  PickleValue run();

 private:
  void step(unsigned char opcode);
  bool push_constant(unsigned char opcode);
  bool push_number(unsigned char opcode);
  bool push_text(unsigned char opcode);
  bool make_tuple(unsigned char opcode);
  bool fill(unsigned char opcode);
  bool use_memo(unsigned char opcode);
  bool use_global(unsigned char opcode);
  [[noreturn]] void refuse(unsigned char opcode) const;

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
  PickleHeap& heap_;
  PickleCalls& calls_;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_; // sizes of the stack
  std::vector<PickleValue> memo_;
  std::vector<bool> memo_set_;
  uint64_t memo_count_ = 0;
};

} // namespace ddp::detail
