"""What other programs took of the CPUs."""

import os
import resource


class OthersShare:
    """How much of the CPUs other programs took since construction."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        all_time, idle = sum(ticks), ticks[3] + ticks[4]
        own = 0.0
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            own += usage.ru_utime + usage.ru_stime
        return all_time, all_time - idle, own * os.sysconf("SC_CLK_TCK")

    def share(self):
        end = self.now()
        total, busy, own = (e - s for e, s in zip(end, self.start))
        return max(0.0, busy - own) / max(1, total)
