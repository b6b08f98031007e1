#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <checkpoint/atomic_file.h>
#include <checkpoint/safetensors.h>
#include <checkpoint/safetensors_header.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian, and so has to be the machine"
#endif

namespace ddp {
namespace {

using detail::kDigestOffset;
using detail::kDigestSize;

constexpr uint64_t kMaxHeaderBytes = 100'000'000; // the format's own limit

class Digest {
 public:
  Digest() : state_(XXH3_createState(), &XXH3_freeState) {
    XXH3_64bits_reset(state_.get());
  }

  // `header` as it is in the file, save for the digest itself.
  void add_header(std::string header) {
    header.replace(kDigestOffset, kDigestSize, kDigestSize, '0');
    add(header.data(), header.size());
  }

  void add(const void* data, size_t bytes) {
    XXH3_64bits_update(state_.get(), data, bytes);
  }

  std::string hex() const {
    char text[kDigestSize + 1];
    const uint64_t value = XXH3_64bits_digest(state_.get());
    std::snprintf(text, sizeof(text), "%016" PRIx64, value);
    return text;
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// The tensors' positions in the order of their bytes in the file: wide dtypes
// first, so that each lies aligned for readers that map the file.
std::vector<size_t> data_order(const StateDict& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a]->element_size() > tensors[b]->element_size();
  });
  return order;
}

detail::SafetensorsHeader describe(
    const StateDict& tensors,
    const std::vector<size_t>& order) {
  detail::SafetensorsHeader header;
  for (const auto& item : tensors) {
    const auto& tensor = item.value();
    TORCH_CHECK_TYPE(
        tensor.layout() == at::kStrided,
        "tensor '",
        item.key(),
        "' has layout ",
        tensor.layout(),
        ", which a safetensors file cannot hold; make it dense first");
    detail::safetensors_dtype(tensor.scalar_type(), item.key());
    header.entries.push_back(
        {item.key(), tensor.scalar_type(), tensor.sizes().vec()});
  }
  uint64_t position = 0;
  for (const auto i : order) {
    header.entries[i].begin = position;
    position += tensors[i]->nbytes();
    header.entries[i].end = position;
  }
  return header;
}

at::Tensor plain(const at::Tensor& tensor) {
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

void check_defined(const StateDict& tensors) {
  for (const auto& item : tensors) {
    TORCH_CHECK_VALUE(
        item.value().defined(), "tensor '", item.key(), "' is undefined");
  }
}

// A file that is read from its first byte to its last, with messages.
class Reader {
 public:
  explicit Reader(const std::string& path)
      : where_("cannot read '" + path + "': ") {
    std::error_code error;
    size_ = std::filesystem::file_size(path, error);
    TORCH_CHECK(!error, where_, error.message());
    stream_.open(path, std::ios::binary);
    TORCH_CHECK(
        stream_.is_open(), where_, std::generic_category().message(errno));
  }

  uint64_t size() const {
    return size_;
  }

  const std::string& where() const {
    return where_;
  }

  void read(void* data, uint64_t bytes) {
    stream_.read(static_cast<char*>(data), static_cast<int64_t>(bytes));
    TORCH_CHECK(
        stream_.good(),
        where_,
        "asked for ",
        bytes,
        " bytes and got ",
        stream_.gcount(),
        "; has it changed meanwhile?");
  }

 private:
  std::string where_;
  uint64_t size_;
  std::ifstream stream_;
};

std::string read_header(Reader& file) {
  uint64_t header_bytes = 0;
  TORCH_CHECK(
      file.size() >= sizeof(header_bytes),
      file.where(),
      "truncated: it has ",
      file.size(),
      " bytes, the length of the header alone takes ",
      sizeof(header_bytes));
  file.read(&header_bytes, sizeof(header_bytes));
  TORCH_CHECK(
      header_bytes <= kMaxHeaderBytes,
      file.where(),
      "no safetensors file: its header would have ",
      header_bytes,
      " bytes, the format allows ",
      kMaxHeaderBytes);
  const auto rest = file.size() - sizeof(header_bytes);
  TORCH_CHECK(
      header_bytes <= rest,
      file.where(),
      "truncated: it says that ",
      header_bytes,
      " bytes of header follow, the file has ",
      rest);
  std::string text(header_bytes, '\0');
  file.read(text.data(), header_bytes);
  return text;
}

// The tensors in the order of `entries`, read in the order of the data.
StateDict read_tensors(
    Reader& file,
    std::vector<detail::TensorEntry> entries,
    Digest& digest) {
  StateDict tensors;
  for (const auto& entry : entries) {
    tensors.insert(entry.name, at::empty(entry.shape, entry.dtype));
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.begin < b.begin;
  });
  for (const auto& entry : entries) {
    auto& tensor = tensors[entry.name];
    file.read(tensor.mutable_data_ptr(), tensor.nbytes());
    digest.add(tensor.const_data_ptr(), tensor.nbytes());
  }
  return tensors;
}

} // namespace

void write_safetensors(
    const std::string& path,
    const StateDict& tensors,
    const SafetensorsMetadata& metadata) {
  check_defined(tensors);
  const auto order = data_order(tensors);
  auto header = describe(tensors, order);
  header.metadata = metadata;
  const auto text = detail::format_header(header);
  const uint64_t header_bytes = text.size();
  TORCH_CHECK_VALUE(
      header_bytes <= kMaxHeaderBytes,
      "cannot write '",
      path,
      "': names, shapes and metadata take ",
      header_bytes,
      " bytes, the format allows ",
      kMaxHeaderBytes);

  detail::AtomicFile file(path);
  Digest digest;
  file.write(&header_bytes, sizeof(header_bytes));
  file.write(text.data(), text.size());
  digest.add_header(text);
  for (const auto i : order) {
    const auto tensor = plain(*tensors[i]);
    file.write(tensor.const_data_ptr(), tensor.nbytes());
    digest.add(tensor.const_data_ptr(), tensor.nbytes());
  }
  file.overwrite(
      sizeof(header_bytes) + kDigestOffset, digest.hex().data(), kDigestSize);
  file.commit();
}

SafetensorsFile read_safetensors(const std::string& path) {
  Reader file(path);
  const auto text = read_header(file);
  const auto data_bytes = file.size() - sizeof(uint64_t) - text.size();
  auto header = detail::parse_header(text, data_bytes, file.where());
  Digest digest;
  if (!header.digest.empty()) {
    digest.add_header(text);
  }
  SafetensorsFile result;
  result.tensors = read_tensors(file, header.entries, digest);
  result.metadata = std::move(header.metadata);
  TORCH_CHECK(
      header.digest.empty() || digest.hex() == header.digest,
      file.where(),
      "damaged: its content has the digest ",
      digest.hex(),
      ", it says ",
      header.digest,
      "; restore it from a copy");
  return result;
}

} // namespace ddp
