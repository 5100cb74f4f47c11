"""Parse pods and nodes as ``kubectl get … -o json`` writes them, for traces and live engines alike.

``objects`` reads a file, ``pod`` says in one flat record what a pod asked for and what became of it, ``cluster`` says
what the nodes are. ``resources`` knows Kubernetes' quantities and the many names of a GPU.
"""

from headway.jobs.kubernetes.nodes import cluster, describes, slicing
from headway.jobs.kubernetes.objects import Item, objects
from headway.jobs.kubernetes.pods import PodRecord, pod
from headway.jobs.kubernetes.resources import WHOLE, ObjectError, Slicing

__all__ = ["WHOLE", "Item", "ObjectError", "PodRecord", "Slicing", "cluster", "describes", "objects", "pod", "slicing"]
