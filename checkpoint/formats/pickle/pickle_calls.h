#pragma once

#include <checkpoint/formats/pickle/pickle_value.h>

#include <functional>
#include <map>

namespace ddp::detail {

/// Loads the file's storage with a key.
using LoadStorage = std::function<at::Storage(const std::string& key)>;

/// Implements the names on the allow-list. Each checks its arguments, and
/// throws `c10::Error` that names an unknown one.
class PickleCalls {
 public:
  /// `load` is called once for each key. Unless `strict`, names that are not on
  /// the list become unknown values, and calling them does nothing.
  PickleCalls(PickleHeap& heap, LoadStorage load, bool strict);

  /// The value of a name.
  PickleValue global(const std::string& module, const std::string& name);

  using Function =
      PickleValue (PickleCalls::*)(const PickleValue&, const PickleValue&);

  /// Calls `function`, which has to be one of Python's names, with `arguments`.
  PickleValue call(const PickleValue& function, const PickleValue& arguments);

  /// An object of `type`, which must be that of a LibTorch archive.
  PickleValue create(const PickleValue& type, const PickleValue& arguments);

  /// The storage with a persistent id.
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
