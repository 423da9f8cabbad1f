"""Seeds of volumes and node plugins that found something once, each with a sentence."""

from tests.simulation.regressions import Found

VOLUME_REGRESSIONS = (
    Found(
        "volumes",
        1868,
        "a volume was detached from the node of a pod, because a wrong view lacked its attachment",
        edition=2,
    ),
    Found(
        "volume-nodes",
        95,
        "a pod that came back to its node before the attachment was deleted never started: the "
        "attachment was kept for a mount that the kubelet only waited for",
        edition=2,
    ),
    Found(
        "volume-nodes",
        445,
        "a volume was detached from a running machine that had mounted it, because the watch of "
        "nodes had stalled: the node is read again before a detachment",
        edition=2,
    ),
    Found(
        "volume-nodes",
        1850,
        "a volume was detached from a running machine that had mounted it, because one list of "
        "machines was empty: a missing machine is believed after a minute",
        edition=2,
    ),
    Found(
        "volume-nodes",
        1002,
        "a claim got a second volume: its first one was deleted by others before its "
        "PersistentVolume was in the cache",
        edition=2,
    ),
    Found(
        "volume-nodes",
        243,
        "an attachment that was deleted while the watch stalled was written to twice a second",
        edition=2,
    ),
    Found(
        "volume-nodes",
        305,
        "a world counted as quiet (for the judge) although attachments of a silent node were about "
        "to be deleted",
        edition=2,
    ),
    Found(
        "volume-nodes",
        69,
        "an attachment that is being deleted, and whose volume a pod that came back has mounted, "
        "was taken (by the judge) for one that is stuck",
        edition=2,
    ),
    Found(
        "volumes",
        10,
        "a change of an attachment made its status be written 11 s before the time that the API "
        "server had asked for",
        edition=2,
    ),
    Found(
        "volume-nodes",
        1110,
        "a new attachment of a volume made a request be repeated a second before the time that "
        "the API server had asked for",
        edition=2,
    ),
    Found(
        "volumes",
        1384,
        "a cloud that asked for many short pauses caused more reads of the API server than the "
        "judge expected",
        edition=2,
    ),
    Found(
        "volume-nodes",
        1067,
        "the end of a pause woke a manager (in the simulation) whose machine slept: it worked on "
        "without its timers, and lost its lease in a world that counted as quiet",
        edition=2,
    ),
    Found(
        "volume-nodes",
        4,
        "a disk of the machine that shows no ID was formatted, because the cloud's guess of the "
        "volume's device named it",
        edition=2,
    ),
    Found(
        "volume-nodes",
        584,
        "a detachment that the cloud accepted and did not do was requested again without a pause",
        edition=2,
    ),
    Found(
        "volumes",
        136,
        "a claim never got its volume, because the creation of its PersistentVolume was answered "
        "with a conflict, which ended the pass without a retry",
        edition=2,
    ),
    Found(
        "volumes",
        109,
        "a PersistentVolume that was requested again at once, because its claim had changed, was "
        "taken (by the judge) for a request that had to wait",
        edition=2,
    ),
    Found(
        "volumes",
        463,
        "a manager that was resumed was blamed (by the judge) for a call that it sent before it "
        "read the answer that had come while it was paused",
        edition=2,
    ),
    Found(
        "volumes",
        311,
        "the scheduler (of the simulation) gave a node more volumes than its machine can have",
        edition=2,
    ),
    Found(
        "volume-writers",
        97,
        "a pod of a deleted claim started again (by the simulation) on an overloaded machine, and "
        "kept the volume, which the judge took for a leak",
        edition=3,
    ),
)
