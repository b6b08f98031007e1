#include <caffe2/serialize/inline_container.h>
#include <checkpoint/formats/pickle/pickle_reader.h>
#include <checkpoint/formats/torch_archive.h>
#include <checkpoint/formats/values.h>
#include <ddp/internal/check.h>
#include <ddp/support/atomic_file.h>
#include <ddp/support/plain_tensor.h>

#include <algorithm>
#include <exception>
#include <set>

namespace ddp::detail {
namespace {

// The number with which files of older versions of torch.save begin.
constexpr const char* kLegacyMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr size_t kLegacyHead = 32;

const ByteSource& check_format(const ByteSource& source) {
  std::string head(std::min<uint64_t>(source.size(), kLegacyHead), '\0');
  source.read(0, head.data(), head.size());
  DDP_CHECK(
      head.find(kLegacyMagic) == std::string::npos,
      "it has the format of torch.save before version 1.6 "
      "(_use_new_zipfile_serialization=False), which this library does not "
      "read; load it with Python and save it again");
  return source;
}

// LibTorch's writer of zip files. Exceptions cannot pass through its C code,
// and its destructor completes the file. The first error is therefore stored
// until the end of the record, and nothing more is written.
class ArchiveWriter {
 public:
  explicit ArchiveWriter(AtomicFile& file)
      : zip_([this, &file](const void* data, size_t bytes) {
          write(file, data, bytes);
          return bytes;
        }) {}

  void add(const std::string& name, const void* data, size_t bytes) {
    zip_.writeRecord(name, data, bytes);
    check();
  }

  void finish() {
    zip_.writeEndOfFile();
    check();
  }

 private:
  void write(AtomicFile& file, const void* data, size_t bytes) {
    try {
      if (!error_) {
        file.write(data, bytes);
      }
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  void check() const {
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

  std::exception_ptr error_;
  caffe2::serialize::PyTorchStreamWriter zip_; // must be destroyed first
};

} // namespace

TorchArchive::TorchArchive(const ByteSource& source)
    : zip_(check_format(source)), size_(source.size()) {
  DDP_CHECK(
      !zip_.records().empty(),
      "not a file written by torch.save or torch::save: it is empty");
  const auto& first = zip_.records().front().name;
  prefix_ = first.substr(0, first.find('/') + 1);
}

std::optional<std::string> TorchArchive::record(const std::string& name) const {
  const auto* found = zip_.find(prefix_ + name);
  return found == nullptr ? std::nullopt : std::optional(zip_.text(*found));
}

std::string TorchArchive::required(const std::string& name) const {
  auto content = record(name);
  DDP_CHECK(
      content.has_value(),
      "not a file written by torch.save or torch::save: it has no record "
      "'{}{}'",
      prefix_,
      name);
  return *std::move(content);
}

c10::IValue TorchArchive::value(
    bool strict,
    bool verify,
    std::vector<std::string>* omitted) const {
  const auto order = record("byteorder");
  DDP_CHECK(
      !order.has_value() || *order == "little",
      "its numbers are {}-endian, but this library reads only little-endian "
      "numbers",
      order.value_or(""));
  std::set<std::string> used{prefix_ + "data.pkl", prefix_ + "byteorder"};
  const auto load = [&](const std::string& key) {
    const auto* found = zip_.find(prefix_ + "data/" + key);
    DDP_CHECK(found != nullptr, "it has no record for its storage '{}'", key);
    used.insert(found->name);
    return zip_.tensor(*found, verify).storage();
  };
  auto value = read_pickle(
      required("data.pkl"), value_budget(size_), load, strict, omitted);
  for (const auto& record : zip_.records()) {
    // Code in the file is only for LibTorch's modules.
    const bool code = record.name.rfind(prefix_ + "code/", 0) == 0;
    if (verify && !code && used.count(record.name) == 0) {
      zip_.verify(record);
    }
  }
  return value;
}

void write_torch_archive(
    const std::string& path,
    const PickledValue& value,
    const std::function<void()>& check) {
  AtomicFile file(path);
  ArchiveWriter archive(file);
  archive.add("data.pkl", value.pickle.data(), value.pickle.size());
  const std::string order = "little";
  archive.add("byteorder", order.data(), order.size());
  for (size_t i = 0; i < value.storages.size(); ++i) {
    const auto bytes = plain_tensor(value.storages[i]);
    archive.add(
        "data/" + std::to_string(i), bytes.const_data_ptr(), bytes.nbytes());
  }
  archive.finish();
  file.commit(check);
}

} // namespace ddp::detail
