#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/common/naming_file.h>
#include <checkpoint/formats/torch_archive.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/support/atomic_file.h>

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
