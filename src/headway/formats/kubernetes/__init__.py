"""Parse pods and nodes as ``kubectl get … -o json`` writes them, for traces and live engines alike.

``objects`` reads a file, ``pod`` says in one flat record what a pod asked for and what became of it, ``cluster`` says
what the nodes are. ``resources`` knows Kubernetes' quantities and the many names of a GPU.
"""

from headway.formats.kubernetes.nodes import cluster, describes, slicing
from headway.formats.kubernetes.objects import Item, objects
from headway.formats.kubernetes.pods import PodRecord, pod
from headway.formats.kubernetes.resources import WHOLE, ObjectError, Slicing

__all__ = ["WHOLE", "Item", "ObjectError", "PodRecord", "Slicing", "cluster", "describes", "objects", "pod", "slicing"]
