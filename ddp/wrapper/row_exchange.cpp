#include <ddp/wrapper/row_exchange.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/parallel_forward.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/error_text.h>
#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include <numeric>
#include <sstream>

namespace ddp::detail {
namespace {

using Counts = std::vector<int64_t>; // of rows, by rank

/// Returns the contents of all ranks, by rank. Throws the same text on all:
/// `c10::ValueError` if the calls differ or ranks made a mistake, otherwise
/// `c10::Error` if ranks failed. Collective.
std::vector<std::string> exchange_statuses(
    const RankStatus& status,
    const ProcessGroup& group) {
  const auto said = !status.mistake.empty() ? 'm' + status.mistake
      : !status.failure.empty()             ? 'f' + status.failure
                                            : 'c' + status.content;
  std::vector<std::string> calls;
  std::map<char, std::vector<std::string>> texts;
  for (const auto& text : group.all_gather(status.call + '\n' + said)) {
    const auto end = text.find('\n');
    calls.push_back(text.substr(0, end));
    for (const char kind : {'m', 'f', 'c'}) {
      texts[kind].push_back(text[end + 1] == kind ? text.substr(end + 2) : "");
    }
  }
  check_same_calls(calls);
  const auto& call = calls.front();
  const auto mistakes = name_by_ranks(texts['m']);
  DDP_CHECK_VALUE(mistakes.empty(), "{} failed: {}", call, mistakes);
  const auto failures = name_by_ranks(texts['f']);
  DDP_CHECK(failures.empty(), "{} failed: {}", call, failures);
  return texts['c'];
}

/// The properties of a tensor that ranks exchange.
struct Form {
  at::ScalarType dtype = at::ScalarType::Undefined;
  std::vector<int64_t> sizes; // empty: undefined
};

std::string text_of_form(const at::Tensor& tensor) {
  const auto dtype = static_cast<int>(tensor.scalar_type());
  return nlohmann::json(std::pair(dtype, tensor.sizes().vec())).dump();
}

Form form_from_text(const std::string& text) {
  if (text.empty()) {
    return {};
  }
  const auto [dtype, sizes] =
      nlohmann::json::parse(text).get<std::pair<int, std::vector<int64_t>>>();
  return {static_cast<at::ScalarType>(dtype), sizes};
}

/// "Float [*, 64]": the properties that must be equal in a join.
std::string describe_row(const Form& form) {
  std::ostringstream text;
  text << form.dtype << " [*";
  for (size_t i = 1; i < form.sizes.size(); ++i) {
    text << ", " << form.sizes[i];
  }
  text << "]";
  return text.str();
}

at::Tensor empty_rows(const Form& form, int64_t rows, c10::Device device) {
  auto sizes = form.sizes;
  sizes[0] = rows;
  return at::empty(sizes, at::dtype(form.dtype).device(device));
}

/// Returns the tensor to send, or sets `status` to the reason against sending
/// it: nothing may fail after the other ranks have got the status.
at::Tensor make_ready(
    const at::Tensor& tensor,
    c10::Device device,
    const char* noun,
    RankStatus& status) {
  const auto reject = [&](const auto&... why) {
    status.mistake = c10::str("the ", noun, " ", why...);
    return at::Tensor();
  };
  if (!tensor.defined()) {
    return reject("is an undefined tensor: pass a tensor of shape [n, ...]");
  }
  if (tensor.layout() != at::kStrided) {
    return reject("is ", tensor.layout(), ": call to_dense() on it");
  }
  if (tensor.is_quantized()) {
    return reject("is quantized: call int_repr() or dequantize() on it");
  }
  if (tensor.dim() == 0) {
    return reject(
        "has shape [], but dimension 0 must count the rows: pass a tensor of "
        "shape [n, ...]; for a single row, call unsqueeze(0) on it");
  }
  try {
    const auto ready =
        detail::with_plain_memory(tensor.detach().to(device)).contiguous();
    as_bytes(ready);
    status.content = text_of_form(ready);
    return ready;
  } catch (const std::exception& error) {
    return reject(
        "cannot be sent from ",
        tensor.device(),
        " through ",
        device,
        ": ",
        error_text(error));
  }
}

/// The number of `rows` for each rank.
Counts split(int64_t rows, int64_t size) {
  Counts counts(size, rows / size);
  for (int64_t r = 0; r < rows % size; ++r) {
    ++counts[r];
  }
  return counts;
}

int64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

/// The form of the shares, and their numbers of rows.
std::pair<Form, Counts> join(
    const std::vector<std::string>& texts,
    const char* noun,
    const std::string& call) {
  Form common;
  Counts counts;
  std::vector<std::string> words;
  bool alike = true;
  for (const auto& text : texts) {
    const auto form = form_from_text(text);
    if (form.sizes.empty()) {
      counts.push_back(0);
      words.emplace_back();
      continue;
    }
    common = common.sizes.empty() ? form : common;
    counts.push_back(form.sizes[0]);
    words.push_back(describe_row(form));
    alike = alike && words.back() == describe_row(common);
  }
  DDP_CHECK_VALUE(
      alike,
      "{} failed: the {}s must agree in dtype and in all sizes except the "
      "first, but are {}",
      call,
      noun,
      name_by_ranks(words));
  return {common, counts};
}

/// Sends each rank its rows of `from`, in order, and fills `to` with theirs.
void exchange_rows(
    const ProcessGroup& group,
    const char* operation,
    const at::Tensor& from,
    Counts sent,
    const at::Tensor& to,
    Counts received) {
  auto& impl = ProcessGroupImpl::of(group);
  const heartbeat::Activity activity(operation);
  guarded(impl, operation, [&] {
    auto input = as_bytes(from);
    auto output = as_bytes(to);
    wait(impl, start(impl, output, [&] {
           return impl.group->alltoall_base(output, input, received, sent);
         }));
  });
}

} // namespace

std::string name_destination(int64_t destination) {
  return destination == kAllRanks ? "all ranks"
                                  : c10::str("rank ", destination);
}

std::string rank_mistake(int64_t rank, const ProcessGroup& group) {
  return rank >= 0 && rank < group.size()
      ? ""
      : c10::str("rank ", rank, " does not exist in a group of ", group.size());
}

at::Tensor scatter_rows(
    const at::Tensor& input,
    const ProcessGroup& group,
    int64_t root,
    RankStatus status) {
  const at::NoGradGuard no_grad;
  const bool is_root = group.rank() == root;
  if (status.mistake.empty()) {
    status.mistake = rank_mistake(root, group);
  }
  at::Tensor rows;
  if (is_root && status.mistake.empty()) {
    rows = make_ready(input, group.device(), "input", status);
  }
  const auto form = form_from_text(exchange_statuses(status, group)[root]);
  if (group.size() == 1) {
    return rows;
  }
  const auto counts = split(form.sizes[0], group.size());
  auto share = empty_rows(form, counts[group.rank()], group.device());
  if (form.sizes[0] > 0) {
    const Counts none(group.size(), 0);
    auto received = none;
    received[root] = counts[group.rank()];
    exchange_rows(
        group,
        "scatter",
        is_root ? rows : empty_rows(form, 0, group.device()),
        is_root ? counts : none,
        share,
        received);
  }
  return share;
}

at::Tensor gather_rows(
    const at::Tensor& share,
    const ProcessGroup& group,
    int64_t destination,
    const char* noun,
    RankStatus status) {
  const at::NoGradGuard no_grad;
  const bool to_all = destination == kAllRanks;
  const int64_t root = to_all ? 0 : destination;
  if (status.mistake.empty()) {
    status.mistake = rank_mistake(root, group);
  }
  at::Tensor rows;
  if (share.defined() && status.mistake.empty()) {
    rows = make_ready(share, group.device(), noun, status);
  }
  const auto texts = exchange_statuses(status, group);
  const auto [form, counts] = join(texts, noun, status.call);
  if (group.size() == 1 || form.sizes.empty()) {
    return rows;
  }
  const bool is_root = group.rank() == root;
  const bool gets = is_root || to_all;
  auto result = empty_rows(form, gets ? total(counts) : 0, group.device());
  if (total(counts) > 0) {
    const auto nothing = empty_rows(form, 0, group.device());
    const Counts none(group.size(), 0);
    auto sent = none;
    sent[root] = counts[group.rank()];
    exchange_rows(
        group,
        "gather",
        rows.defined() ? rows : nothing,
        sent,
        is_root ? result : nothing,
        is_root ? counts : none);
    if (to_all) {
      group.broadcast(as_bytes(result), root);
    }
  }
  return gets ? result : at::Tensor();
}

} // namespace ddp::detail

namespace ddp {

at::Tensor scatter(
    const at::Tensor& input,
    const ProcessGroup& group,
    int64_t root) {
  detail::RankStatus status;
  status.call = "scatter from rank " + std::to_string(root);
  const detail::heartbeat::Activity activity(status.call.c_str());
  return detail::scatter_rows(input, group, root, status);
}

at::Tensor gather(
    const at::Tensor& share,
    const ProcessGroup& group,
    int64_t destination) {
  detail::RankStatus status;
  status.call = "gather to " + detail::name_destination(destination);
  const detail::heartbeat::Activity activity(status.call.c_str());
  return detail::gather_rows(share, group, destination, "share", status);
}

} // namespace ddp
