#include <checkpoint/formats/safetensors_header.h>

#include <ddp/internal/check.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace ddp::detail {
namespace {

using Json = nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";
constexpr const char* kChecksumKey = "ddp.xxh3";

// The two spaces distinguish a header of this library from one into which
// another program copied the library's metadata, including checksums, with
// changed tensors. Checksums are expected only after these spaces. With a
// flipped bit in them, the text is not JSON.
constexpr const char* kOurHead = "{  ";
constexpr const char* kOurHeadToChecksum =
    "{  \"__metadata__\":{\"ddp.xxh3\":\"";
static_assert(
    std::char_traits<char>::length(kOurHeadToChecksum) == kChecksumOffset);

constexpr size_t kHeaderAlignment = 8;

// A valid header needs 2 levels. Writing a value to a message is recursive.
constexpr int kMaxDepth = 64;

constexpr std::array<std::pair<const char*, c10::ScalarType>, 19>
    kSafetensorsDtypes{{
        {"F64", c10::kDouble},
        {"F32", c10::kFloat},
        {"F16", c10::kHalf},
        {"BF16", c10::kBFloat16},
        {"F8_E4M3", c10::kFloat8_e4m3fn},
        {"F8_E5M2", c10::kFloat8_e5m2},
        {"F8_E4M3FNUZ", c10::kFloat8_e4m3fnuz},
        {"F8_E5M2FNUZ", c10::kFloat8_e5m2fnuz},
        {"F8_E8M0", c10::kFloat8_e8m0fnu},
        {"I64", c10::kLong},
        {"I32", c10::kInt},
        {"I16", c10::kShort},
        {"I8", c10::kChar},
        {"U64", c10::kUInt64},
        {"U32", c10::kUInt32},
        {"U16", c10::kUInt16},
        {"U8", c10::kByte},
        {"BOOL", c10::kBool},
        {"C64", c10::kComplexFloat},
    }};

// A JSON object, and its keys in the order of the text. nlohmann's ordered
// object would take linear time to look up a key.
struct OrderedObject {
  Json json;
  std::vector<std::string> keys;
};

// Also rejects repeated keys: nlohmann's parser silently keeps the last one.
OrderedObject parse_json(const std::string& text) {
  OrderedObject result;
  std::vector<std::set<std::string>> open_objects;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    DDP_CHECK(
        depth <= kMaxDepth,
        "the header is nested too deeply: more than {} levels",
        kMaxDepth);
    if (event == Json::parse_event_t::object_start) {
      open_objects.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_objects.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto key = parsed.get<std::string>();
      DDP_CHECK(
          open_objects.back().insert(key).second,
          "the header has the key '{}' twice",
          key);
      if (open_objects.size() == 1) {
        result.keys.push_back(key);
      }
    }
    return true;
  };
  try {
    result.json = Json::parse(text, check);
  } catch (const nlohmann::json::exception& error) {
    DDP_THROW(Error, "the header is not JSON: {}", error.what());
  }
  return result;
}

uint64_t parse_unsigned(const Json& value, const char* what) {
  DDP_CHECK(
      value.is_number_unsigned(),
      "{} has {}, expected a non-negative integer",
      what,
      value.dump());
  const auto number = value.get<uint64_t>();
  DDP_CHECK(
      number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
      "{} has {}, which exceeds 63 bits",
      what,
      number);
  return number;
}

const Json& array_field(const Json& entry, const char* field) {
  const auto found = entry.find(field);
  DDP_CHECK(
      found != entry.end() && found->is_array(), "it has no array '{}'", field);
  return *found;
}

c10::ScalarType parse_dtype(const Json& entry) {
  const auto found = entry.find("dtype");
  DDP_CHECK(
      found != entry.end() && found->is_string(), "it has no string 'dtype'");
  const auto name = found->get<std::string>();
  const auto* known = std::find_if(
      kSafetensorsDtypes.begin(),
      kSafetensorsDtypes.end(),
      [&](const auto& dtype) { return name == dtype.first; });
  DDP_CHECK(
      known != kSafetensorsDtypes.end(),
      "its dtype is '{}', which this library does not support",
      name);
  return known->second;
}

uint64_t byte_count(const TensorEntry& entry) {
  uint64_t bytes = c10::elementSize(entry.dtype);
  bool empty = false;
  for (const auto size : entry.shape) {
    empty = empty || size == 0;
    const auto factor = static_cast<uint64_t>(std::max<int64_t>(size, 1));
    DDP_CHECK(
        !__builtin_mul_overflow(bytes, factor, &bytes) &&
            bytes <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
        "the number of elements of its shape {} exceeds 63 bits",
        c10::IntArrayRef(entry.shape));
  }
  return empty ? 0 : bytes;
}

TensorEntry parse_entry(const std::string& name, const Json& json) {
  DDP_CHECK(
      json.is_object(),
      "its description is {}, expected an object",
      json.dump());
  TensorEntry entry;
  entry.name = name;
  entry.dtype = parse_dtype(json);
  for (const auto& size : array_field(json, "shape")) {
    entry.shape.push_back(static_cast<int64_t>(parse_unsigned(size, "shape")));
  }
  const auto& offsets = array_field(json, "data_offsets");
  DDP_CHECK(
      offsets.size() == 2,
      "its data_offsets are {}, expected [begin, end]",
      offsets.dump());
  entry.begin = parse_unsigned(offsets[0], "data_offsets");
  entry.end = parse_unsigned(offsets[1], "data_offsets");
  const auto expected = byte_count(entry);
  DDP_CHECK(
      entry.begin <= entry.end && entry.end - entry.begin == expected,
      "its data_offsets are {}, but its dtype and shape need {} bytes",
      offsets.dump(),
      expected);
  return entry;
}

SafetensorsMetadata parse_metadata(const Json& json) {
  SafetensorsMetadata metadata;
  if (json.is_null()) { // as an optional field that is missing
    return metadata;
  }
  DDP_CHECK(json.is_object(), "{} is not an object", kMetadataKey);
  for (const auto& [key, value] : json.items()) {
    DDP_CHECK(
        value.is_string(),
        "{}: '{}' is {}, expected a string",
        kMetadataKey,
        key,
        value.dump());
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Moves the checksums out of the metadata, the only field in which other
// readers accept them.
void take_checksums(const std::string& text, SafetensorsHeader& header) {
  const auto checksums = std::exchange(header.metadata[kChecksumKey], {});
  header.metadata.erase(kChecksumKey);
  if (text.rfind(kOurHead, 0) != 0) {
    return;
  }
  DDP_CHECK(
      text.rfind(kOurHeadToChecksum, 0) == 0 &&
          checksums.size() == kChecksumSize * (1 + header.entries.size()),
      "corrupt: the header has no valid '{}' for its {} tensors; restore the "
      "file from a copy",
      kChecksumKey,
      header.entries.size());
  const auto seen = header_checksum(text);
  const auto expected = checksums.substr(0, kChecksumSize);
  DDP_CHECK(
      seen == expected,
      "corrupt: the checksum of its header is {}, but the header says {}; "
      "restore the file from a copy",
      seen,
      expected);
  header.checksums = checksums;
}

void check_tiling(std::vector<TensorEntry> entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t position = 0;
  for (const auto& entry : entries) {
    DDP_CHECK(
        entry.begin == position,
        "the data of '{}' begin at byte {} of the data, but the preceding data "
        "end at {}",
        entry.name,
        entry.begin,
        position);
    position = entry.end;
  }
  DDP_CHECK(
      position <= data_bytes,
      "truncated: the header describes {} bytes of data, but the file has {}",
      position,
      data_bytes);
  DDP_CHECK(
      position == data_bytes,
      "the header describes {} bytes of data, but the file has {}",
      position,
      data_bytes);
}

} // namespace

SafetensorsHeader parse_header(const std::string& text, uint64_t data_bytes) {
  DDP_CHECK(
      !text.empty() && text[0] == '{',
      "not a safetensors file: the header does not start with '{'");
  SafetensorsHeader header;
  const auto object = parse_json(text);
  for (const auto& name : object.keys) {
    const auto& value = object.json.at(name);
    if (name == kMetadataKey) {
      header.metadata = parse_metadata(value);
      continue;
    }
    try {
      header.entries.push_back(parse_entry(name, value));
    } catch (const c10::Error& error) {
      DDP_THROW(Error, "tensor '{}': {}", name, error.what_without_backtrace());
    }
  }
  take_checksums(text, header);
  check_tiling(header.entries, data_bytes);
  return header;
}

std::string header_checksum(std::string text) {
  text.replace(kChecksumOffset, kChecksumSize, kChecksumSize, '0');
  Checksum checksum;
  checksum.add(text);
  return checksum.hex();
}

std::string safetensors_dtype(
    c10::ScalarType dtype,
    const std::string& tensor) {
  for (const auto& [name, known] : kSafetensorsDtypes) {
    if (dtype == known) {
      return name;
    }
  }
  DDP_THROW(
      TypeError,
      "tensor '{}' has dtype {}, which a safetensors file cannot contain; "
      "write a .pt file, or convert it",
      tensor,
      dtype);
}

std::string format_header(const SafetensorsHeader& header) try {
  const auto digits = kChecksumSize * (1 + header.entries.size());
  auto text = kOurHeadToChecksum + std::string(digits, '0') + '"';
  for (const auto& [key, value] : header.metadata) {
    if (key != kChecksumKey) {
      text += "," + Json(key).dump() + ":" + Json(value).dump();
    }
  }
  text += "}";
  for (const auto& entry : header.entries) {
    DDP_CHECK_VALUE(
        entry.name != kMetadataKey,
        "'{}' is not allowed as a tensor name in a safetensors file",
        kMetadataKey);
    const Json json = {
        {"dtype", safetensors_dtype(entry.dtype, entry.name)},
        {"shape", entry.shape},
        {"data_offsets", {entry.begin, entry.end}}};
    text += "," + Json(entry.name).dump() + ":" + json.dump();
  }
  text += "}";
  text.resize(
      (text.size() + kHeaderAlignment - 1) / kHeaderAlignment *
          kHeaderAlignment,
      ' ');
  return text;
} catch (const nlohmann::json::exception& error) { // text that is not UTF-8
  DDP_THROW(
      ValueError,
      "a name or metadata entry cannot be written as JSON: {}",
      error.what());
}

} // namespace ddp::detail
