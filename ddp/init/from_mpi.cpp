#include <ddp/backends/mpi.h>
#include <ddp/environment/environment.h>
#include <ddp/internal/check.h>
#include <ddp/process_group.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/process_group/wait_warning.h>

namespace ddp {
namespace {

ProcessGroupOptions complete(ProcessGroupOptions options) {
  options = complete_options(std::move(options));
  if (options.backend().empty()) {
    options.backend("mpi");
  }
  return options;
}

LaunchEnvironment ranks_of(
    const backends::mpi::Communicator& communicator,
    const ProcessGroupOptions& options) {
  LaunchEnvironment environment;
  environment.source = "MPI";
  environment.interface = options.interface();
  environment.attempt = "ddp";
  environment.master_addr = options.master_addr();
  environment.master_port = options.master_port().value_or(0);
  environment.rank = communicator.rank();
  environment.world_size = communicator.size();
  DDP_CHECK_VALUE(
      options.rank().value_or(environment.rank) == environment.rank &&
          options.world_size().value_or(environment.world_size) ==
              environment.world_size,
      "from_mpi: the options contradict rank {} of {} in the communicator",
      environment.rank,
      environment.world_size);
  return environment;
}

} // namespace

ProcessGroup ProcessGroup::from_mpi_handle(
    const void* handle,
    size_t size,
    const ProcessGroupOptions& program_options) {
  detail::report_to_launcher(program_options);
  const auto options = complete(program_options);
  auto warning = std::make_optional<detail::WaitWarning>(
      *options.wait_notice(),
      "this rank",
      "from_mpi: not all ranks of the communicator have called it");
  const auto communicator =
      backends::mpi::library().adopt(handle, size, *options.timeout());
  auto environment = ranks_of(*communicator, options);
  const bool has_place =
      !environment.master_addr.empty() && environment.master_port != 0;
  if (environment.world_size > 1 && !has_place) {
    detail::rendezvous_over_mpi(environment, *communicator, *options.timeout());
  }
  warning.reset();
  return detail::form_group(options, environment, communicator);
}

} // namespace ddp
