#include <common/symbols.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <vector>

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <common/file_descriptor.h>
#include <common/text.h>

namespace ddp {
namespace {

// A file's bytes. Parts that are not entirely inside the file are empty.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const FileDescriptor file(
        open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!file || fstat(file.get(), &status) != 0 || status.st_size <= 0) {
      return;
    }
    const auto size = static_cast<size_t>(status.st_size);
    void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (memory != MAP_FAILED) {
      bytes_ = {static_cast<const char*>(memory), size};
    }
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) {
      munmap(const_cast<char*>(bytes_.data()), bytes_.size());
    }
  }

  std::string_view part(uint64_t offset, uint64_t size) const {
    const bool inside = offset <= bytes_.size() &&
        size <= bytes_.size() - static_cast<size_t>(offset);
    return inside
        ? bytes_.substr(static_cast<size_t>(offset), static_cast<size_t>(size))
        : std::string_view();
  }

  template <typename T>
  std::vector<T> array(uint64_t offset, uint64_t count) const {
    std::vector<T> values;
    if (count < (uint64_t{1} << 32)) {
      const std::string_view bytes = part(offset, count * sizeof(T));
      values.resize(bytes.size() / sizeof(T));
      if (!bytes.empty()) {
        std::memcpy(values.data(), bytes.data(), bytes.size());
      }
    }
    return values;
  }

 private:
  std::string_view bytes_;
};

struct Function {
  uint64_t start;
  uint64_t end;
  std::string name;
};

// The functions of an ELF file, with offsets from its beginning in memory; none
// if the file is not an ELF file or is stripped.
std::vector<Function> read_functions(const MappedFile& file) {
  std::vector<Function> functions;
  const auto headers = file.array<Elf64_Ehdr>(0, 1);
  if (headers.empty() ||
      std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      headers[0].e_ident[EI_CLASS] != ELFCLASS64) {
    return functions;
  }
  uint64_t base = UINT64_MAX;
  for (const auto& each :
       file.array<Elf64_Phdr>(headers[0].e_phoff, headers[0].e_phnum)) {
    base = each.p_type == PT_LOAD ? std::min(base, each.p_vaddr) : base;
  }
  const auto sections =
      file.array<Elf64_Shdr>(headers[0].e_shoff, headers[0].e_shnum);
  for (const auto& table : sections) {
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= sections.size()) {
      continue;
    }
    const auto& names = sections[table.sh_link];
    for (const auto& symbol : file.array<Elf64_Sym>(
             table.sh_offset, table.sh_size / sizeof(Elf64_Sym))) {
      const std::string_view name = file.part(
          names.sh_offset + symbol.st_name,
          names.sh_size - std::min<uint64_t>(symbol.st_name, names.sh_size));
      const size_t end = name.find('\0');
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_size > 0 &&
          end != std::string_view::npos) {
        const uint64_t start = symbol.st_value - base;
        functions.push_back(
            {start, start + symbol.st_size, std::string(name.substr(0, end))});
      }
    }
  }
  return functions;
}

// The name of a frame at an offset, such as "name+0x12".
std::optional<std::string> name_of(
    const std::vector<Function>& functions,
    uint64_t offset,
    bool is_return) {
  // A call may be its function's last instruction, before the return address.
  const uint64_t inside = offset - (is_return ? 1 : 0);
  for (const Function& each : functions) {
    if (each.start <= inside && inside < each.end) {
      std::ostringstream text;
      text << each.name << "+0x" << std::hex << offset - each.start;
      return text.str();
    }
  }
  return std::nullopt;
}

} // namespace

std::string name_frames(const std::string& stack, const std::string& program) {
  const std::string mark =
      "?? (" + std::filesystem::path(program).filename().string() + "+0x";
  if (program.empty() || stack.find(mark) == std::string::npos) {
    return stack;
  }
  const auto functions = read_functions(MappedFile(program));
  std::string result;
  for (auto line : split_lines(stack)) {
    const size_t at = line.find(mark);
    if (at != std::string::npos) {
      const uint64_t offset =
          std::strtoull(line.c_str() + at + mark.size(), nullptr, 16);
      const bool is_return = line.rfind("#0 ", 0) != 0;
      if (const auto name = name_of(functions, offset, is_return)) {
        line.replace(at, 2, *name);
      }
    }
    result += (result.empty() ? "" : "\n") + line;
  }
  return result;
}

} // namespace ddp
