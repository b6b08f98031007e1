#include <checkpoint/formats/pickle/pickle_reader.h>
#include <checkpoint/formats/pickle/pickle_tree.h>
#include <checkpoint/formats/pickle/unpickler.h>
#include <ddp/internal/check.h>

#include <exception>

namespace ddp::detail {

c10::IValue read_pickle(
    std::string_view pickle,
    uint64_t budget,
    const LoadStorage& load,
    bool strict) {
  std::exception_ptr not_loaded; // which is not the pickle's fault
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
    return make_tree(Unpickler(pickle, arena, globals).run(), arena, strict);
  } catch (const c10::Error& error) {
    if (not_loaded) {
      std::rethrow_exception(not_loaded);
    }
    DDP_THROW(Error, "its pickle: {}", error.what_without_backtrace());
  }
}

} // namespace ddp::detail
