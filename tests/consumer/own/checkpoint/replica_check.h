#pragma once

constexpr int kOwnCheckpointReplicaCheck = 1;
