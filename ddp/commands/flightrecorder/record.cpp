#include <ddp/commands/flightrecorder/record.h>

#include <ddp/commands/json_files.h>

#include <algorithm>
#include <limits>

namespace ddp::command {
namespace {

using nlohmann::json;

/// Replaces the control characters of terminals.
std::string text_of(const json& object, const char* name) {
  auto text = object.at(name).get<std::string>();
  std::replace_if(
      text.begin(),
      text.end(),
      [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return (byte < 0x20 && c != '\n') || byte >= 0x7f;
      },
      '?');
  return text;
}

/// Far more ranks than a job has.
constexpr int64_t kMostRanks = 1 << 20;

int64_t number_of(
    const json& object,
    const char* name,
    int64_t least,
    int64_t most = std::numeric_limits<int64_t>::max()) {
  const auto& value = object.at(name);
  if (!value.is_number_integer()) {
    throw std::runtime_error(std::string(name) + " is no integer");
  }
  const auto number = value.get<int64_t>();
  if (number < least || number > most) {
    throw std::runtime_error(
        std::string(name) + " is " + std::to_string(number));
  }
  return number;
}

Collective collective_of(const json& object) {
  Collective result;
  result.group = text_of(object, "group");
  result.backend = text_of(object, "backend");
  result.size = number_of(object, "size", 1, kMostRanks);
  result.rank = number_of(object, "rank", 0, result.size - 1);
  result.sequence = number_of(object, "sequence", 0);
  result.operation = text_of(object, "operation");
  result.arguments = text_of(object, "arguments");
  result.tensors = text_of(object, "tensors");
  result.alike = object.at("alike").get<bool>();
  result.activity = text_of(object, "activity");
  result.state = text_of(object, "state");
  result.began_ns = number_of(object, "began_ns", 0);
  return result;
}

Record record_of(const std::string& path, const json& object) {
  if (object.at("ddp_flight_record") != 1) {
    throw std::runtime_error("the file was written by another version of ddp");
  }
  Record record;
  record.path = path;
  record.size = number_of(object, "size", 1, kMostRanks);
  record.rank = number_of(object, "rank", 0, record.size - 1);
  record.host = text_of(object, "host");
  record.reason = text_of(object, "reason");
  record.time_ns = number_of(object, "time_ns", 0);
  for (const auto& each : object.at("collectives")) {
    record.collectives.push_back(collective_of(each));
  }
  return record;
}

void check_job(const std::vector<Record>& records) {
  for (size_t i = 1; i < records.size(); ++i) {
    const auto& one = records[i - 1];
    const auto& other = records[i];
    if (one.size != other.size || one.rank == other.rank) {
      throw std::runtime_error(
          one.path + " and " + other.path +
          " are from different jobs: one is rank " + std::to_string(one.rank) +
          " of " + std::to_string(one.size) + ", the other rank " +
          std::to_string(other.rank) + " of " + std::to_string(other.size) +
          ". Remove the files of the earlier job");
    }
  }
}

} // namespace

std::string Collective::text() const {
  auto text = operation;
  text += arguments.empty() ? "" : "(" + arguments + ")";
  return text + (tensors.empty() ? "" : " of " + tensors);
}

std::string Collective::signature() const {
  return operation + "(" + arguments + ")" + (alike ? tensors : "");
}

std::vector<Record> read_records(const std::vector<std::string>& paths) {
  std::vector<Record> records;
  read_json_files(
      paths,
      R"(.*\.json)",
      "flight record",
      [&](const std::string& path, const json& content) {
        records.push_back(record_of(path, content));
      });
  std::sort(
      records.begin(), records.end(), [](const Record& a, const Record& b) {
        return a.rank < b.rank;
      });
  check_job(records);
  return records;
}

} // namespace ddp::command
