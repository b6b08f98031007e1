#include <checkpoint/atomic_file.h>
#include <checkpoint/detail/byte_source.h>
#include <checkpoint/detail/naming_file.h>
#include <checkpoint/detail/torch_archive.h>
#include <checkpoint/torch_file.h>

namespace ddp {

c10::IValue read_torch_file(const std::string& path) {
  return detail::naming_file(path, [&] {
    const detail::FileSource file(path);
    return detail::TorchArchive(file).value();
  });
}

void write_torch_file(const std::string& path, const c10::IValue& value) {
  detail::write_torch_archive(path, detail::write_pickle(value));
}

} // namespace ddp
