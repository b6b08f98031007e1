#include <c10/util/Exception.h>
#include <checkpoint/atomic_file.h>
#include <checkpoint/detail/byte_source.h>
#include <checkpoint/detail/torch_archive.h>
#include <checkpoint/torch_file.h>

namespace ddp {

c10::IValue read_torch_file(const std::string& path) {
  try {
    const detail::FileSource file(path);
    return detail::TorchArchive(file).value();
  } catch (const c10::Error& error) {
    TORCH_CHECK(
        false, "cannot read '", path, "': ", error.what_without_backtrace());
  }
}

void write_torch_file(const std::string& path, const c10::IValue& value) {
  detail::AtomicFile file(path);
  detail::ZipWriter zip(file);
  detail::write_torch_records(zip, value);
  zip.finish();
  file.commit();
}

} // namespace ddp
