#include <ddp/parallel_forward.h>

#include <ddp/wrapper/row_exchange.h>

namespace ddp {

at::Tensor scatter(
    const at::Tensor& input,
    const ProcessGroup& group,
    int64_t root) {
  detail::Notice notice;
  notice.call = "scatter from rank " + std::to_string(root);
  return detail::scatter_rows(input, group, root, notice);
}

at::Tensor gather(
    const at::Tensor& share,
    const ProcessGroup& group,
    int64_t destination) {
  detail::Notice notice;
  notice.call = "gather to " + detail::name_destination(destination);
  return detail::gather_rows(share, group, destination, "share", notice);
}

} // namespace ddp
