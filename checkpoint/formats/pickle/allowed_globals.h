#pragma once

#include <checkpoint/formats/pickle/pickle_value.h>

#include <functional>
#include <map>

namespace ddp::detail {

/// Loads the file's storage with a key.
using LoadStorage = std::function<at::Storage(const std::string& key)>;

/// The functions that the names on the allow-list denote. Each checks its
/// arguments, and throws a `c10::Error` that names unsupported arguments.
class AllowedGlobals {
 public:
  /// `load` is called once for each key. Unless `strict`, names that are not on
  /// the list become unknown objects, and calls to these objects have no
  /// effect.
  AllowedGlobals(PickleArena& arena, LoadStorage load, bool strict);

  /// The value of a name.
  PickleValue find_class(const std::string& module, const std::string& name);

  using Function =
      PickleValue (AllowedGlobals::*)(const PickleValue&, const PickleValue&);

  /// Calls `function`, which must be a Python name, with `arguments`.
  PickleValue reduce(const PickleValue& function, const PickleValue& arguments);

  /// An object of the type, which must be an archive of LibTorch.
  PickleValue new_object(const PickleValue& type, const PickleValue& arguments);

  /// The storage that a persistent id denotes.
  PickleValue persistent_load(const PickleValue& id);

 private:
  const at::Storage& storage_of(const std::string& key, uint64_t bytes);
  PickleValue make_dict(const std::vector<PickleValue>& arguments);
  PickleValue make_counter(const std::vector<PickleValue>& arguments);
  PickleValue make_tensor(
      const PickleGlobal& function,
      const std::vector<PickleValue>& arguments);
  PickleValue make_parameter(const std::vector<PickleValue>& arguments);
  PickleValue make_from_type(const std::vector<PickleValue>& arguments);

  PickleArena& arena_;
  LoadStorage load_;
  bool strict_;
  std::map<std::string, at::Storage> storages_;
};

} // namespace ddp::detail
