"""Several Ray nodes as processes of this machine, until standard input ends.

Usage: stub_cluster.py NODES. Prints the head's address.
"""

from __future__ import annotations

import logging
import sys

from ray.cluster_utils import Cluster

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    for _ in range(int(sys.argv[1]) - 1):
        cluster.add_node(num_cpus=1, num_gpus=1)
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()
