#pragma once

#include <checkpoint/formats/pickle/pickle_value.h>

#include <functional>
#include <map>

namespace ddp::detail {

/// The storage that the file has under a key.
using LoadStorage = std::function<at::Storage(const std::string& key)>;

/// What the names on the allow-list do. Each checks what it gets, and throws
/// `c10::Error` naming what it does not understand.
class PickleCalls {
 public:
  /// `load` is called once for each key. Unless `strict`, names that are not on
  /// the list stand for themselves, and nothing happens when they are called.
  PickleCalls(PickleHeap& heap, LoadStorage load, bool strict);

  /// What a name stands for.
  PickleValue global(const std::string& module, const std::string& name);

  using Function =
      PickleValue (PickleCalls::*)(const PickleValue&, const PickleValue&);

  /// Calls `function`, which has to be one of Python's names, with `arguments`.
  PickleValue call(const PickleValue& function, const PickleValue& arguments);

  /// An object of the type, which is one of LibTorch's archives.
  PickleValue create(const PickleValue& type, const PickleValue& arguments);

  /// The storage that a persistent id stands for.
  PickleValue storage(const PickleValue& id);

 private:
  const at::Storage& storage_of(const std::string& key, uint64_t bytes);
  PickleValue make_dict(const std::vector<PickleValue>& arguments);
  PickleValue make_counter(const std::vector<PickleValue>& arguments);
  PickleValue make_tensor(
      const PickleGlobal& function,
      const std::vector<PickleValue>& arguments);
  PickleValue make_parameter(const std::vector<PickleValue>& arguments);
  PickleValue make_from_type(const std::vector<PickleValue>& arguments);

  PickleHeap& heap_;
  LoadStorage load_;
  bool strict_;
  std::map<std::string, at::Storage> storages_;
};

} // namespace ddp::detail
