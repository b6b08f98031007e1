#pragma once

#include <ddp/environment/environment.h>

namespace ddp::detail {

/// Fills in where the tasks of a Slurm step meet if nothing but Slurm's
/// variables is there to tell: on the first host of the step, at one of a few
/// ports that follow from the numbers of job and step. Another program may have
/// some of them, so rank 0 takes the first that is free, and the others look
/// for the key prefix of their own job. Throws `c10::ValueError` where a
/// variable is missing.
void meet_by_slurm(
    LaunchEnvironment& environment,
    const EnvironmentLookup& lookup);

} // namespace ddp::detail
