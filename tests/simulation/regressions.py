"""Seeds of Services, nodes and routes that found something once, each with a sentence."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    scenario: str
    seed: int
    what: str
    edition: int = 1
    """Of the scenario: the one with which it was found, or else it would be another schedule."""


REGRESSIONS = (
    Found(
        "touched",
        8,
        "the checks of a balancer that changed ten times in a minute were too many (for the "
        "judge), although they start over at short intervals after each change that is accepted",
        edition=2,
    ),
    Found(
        "keys",
        28,
        "a standby replica that watched the lease was woken by its own write, whose answer was "
        "lost, and sent dozens of requests per second",
        edition=2,
    ),
    Found(
        "mixed",
        1040,
        "a load balancer was kept as an orphan, because a wrong view showed many Services as "
        "deleted when the Service that really was deleted by force was cleaned up",
        edition=2,
    ),
    Found(
        "mixed",
        545,
        "a node without a machine seemed to be new for a minute when the clock of the manager had "
        "caught up with its creation, and its route was tried again at short intervals",
        edition=2,
    ),
    Found(
        "ranges",
        2,
        "the pass of the node controller after a change of a node used up (for the judge) the pass "
        "that the route controller may make at once after the same change",
        edition=2,
    ),
    Found(
        "mixed",
        116,
        "a round that was due at the very moment of a look counted (for the judge) as one that "
        "nobody takes, after a manager had been resumed at the end of the faults",
        edition=2,
    ),
    Found(
        "mixed",
        1387,
        "a world counted as quiet (for the judge) although a balancer that a user had deleted was "
        "missing, because only a node of another cloud was left",
        edition=2,
    ),
    Found(
        "two-clouds",
        50112,
        "members that the second cloud's balancer keeps, because the leader never saw a node of "
        "that cloud, were taken (by the judge) for forgotten ones",
        edition=2,
    ),
    Found(
        "services",
        2084,
        "a world counted as quiet (for the judge) although the clean-up of a deleted Service was "
        "in back-off, because another Service was there that the queue did not hold",
        edition=2,
    ),
    Found(
        "mixed",
        9364,
        "a Service that was deleted by force before a new leader had begun to work on Services "
        "counted (for the judge) as one that it knew",
        edition=2,
    ),
    Found(
        "mixed",
        7931,
        "a world counted as quiet (for the judge) although a node was kept until deletions "
        "of the last ten minutes no longer counted: nodes that do not count were counted with it",
        edition=2,
    ),
    Found(
        "mixed",
        4110,
        "a pod range without a route was reported (by the judge) although the oldest of the nodes "
        "that had it was kept without a machine, so that the range stayed reserved for it",
        edition=2,
    ),
    Found(
        "mixed",
        5059,
        "a world counted as quiet (for the judge) although a request that took effect late had "
        "erased the note that a balancer is complete, which the next full check repairs",
        edition=2,
    ),
    Found(
        "mixed",
        4102,
        "a world counted as quiet (for the judge) while the cloud was still at work on a balancer, "
        "because no node of this cloud was left",
        edition=2,
    ),
    Found(
        "mixed",
        4701,
        "an orphan was swept whose Service had been in mode observe when it was deleted, which the "
        "judge took for a change of an unmanaged balancer",
        edition=2,
    ),
    Found(
        "at-once",
        810064,
        "a balancer was reported as a leak (by the judge) that stayed because the Service had "
        "pileus.dev/manage: observe when it became a ClusterIP",
        edition=2,
    ),
    Found(
        "leaders",
        700057,
        "a node that changed while a pass over a Service was under way was given to its balancer "
        "only by drift repair, up to 15 minutes later",
        edition=2,
    ),
    Found(
        "calm",
        810096,
        "a quiet world was blamed (by the judge) for the second refresh of nodes in 330 s, and for "
        "the fresh list that each refresh needs if a node has no machine",
        edition=2,
    ),
    Found(
        "mass-loss",
        810028,
        "the route of a node that existed was deleted, because a streamed list of the nodes lacked "
        "the node",
        edition=2,
    ),
    Found(
        "unaided",
        810074,
        "the route of the only node, deleted while no manager led, was not deleted, because "
        "without nodes no round was made at start",
        edition=2,
    ),
    Found(
        "mixed",
        2104,
        "what had been reported on a Service was forgotten, and reported again, because one view "
        "had lost the Service for a moment",
        edition=2,
    ),
    Found(
        "mixed",
        810084,
        "Services that a wrong view had shown as deleted, and that existed, counted among those "
        "that vanished, so that one which really did was not cleaned up",
        edition=2,
    ),
    Found(
        "replaced",
        700051,
        "a condition was written every 10 s to a node that had been replaced under its name, while "
        "the watch that would have told had stalled",
        edition=2,
    ),
    Found(
        "cloud",
        700030,
        "the clean-up of a Service that was deleted by force ended after one empty list, so that "
        "its balancer was orphaned",
        edition=2,
    ),
    Found(
        "mass-loss",
        37,
        "new orphans were not reported, because another one had been reported within the hour",
        edition=2,
    ),
    Found(
        "services",
        883045,
        "a request that was repeated when the API server had asked for was blamed (by the judge), "
        "because an earlier answer to the same request had asked for longer",
    ),
    Found(
        "services",
        990382,
        "the true address of a balancer that a Service had adopted, and of which only the members "
        "are managed, was taken (by the judge) for an untrue one",
    ),
    Found(
        "nodes",
        3017,
        "the condition of a node or Service that could not be written was tried again with every "
        "pass, each second while the cloud was throttled",
    ),
    Found(
        "watches",
        20201,
        "a quiet world was blamed (by the judge) for a write to the cloud whose refusal was still "
        "on its way",
    ),
    Found(
        "dual-stack",
        20241,
        "a quiet world was blamed (by the judge) for the second of two conditions in which a node "
        "without a machine says so in new words",
    ),
    Found(
        "mixed",
        9436,
        "a world counted as quiet (by the judge) while its leader waited for a dead watch, and had "
        "not begun to work",
    ),
    Found(
        "mixed",
        8807,
        "a Service that was to be looked after again lost its finalizer, because a pass that had "
        "begun before waited for a throttled cloud",
    ),
    Found(
        "mixed",
        5358,
        "a quiet world was blamed (by the judge) for looking twice, ever more seldom, for the "
        "machines of nodes that are of no cloud",
    ),
    Found(
        "mixed",
        2986,
        "a node without pod range was marked as without network, because another cluster's route "
        "led to it",
    ),
    Found(
        "mixed",
        1289,
        "a world counted as quiet (by the judge) while a balancer knew a member by name and not "
        "yet its machine, because the watch that would have told had stalled",
    ),
    Found("mixed", 1231, "an event that met a conflict was dropped, and never told again"),
    Found("mixed", 2190, "a world counted as quiet whose only manager slept (the judge's mistake)"),
    Found(
        "mixed",
        30884,
        "a node whose machine was denied untruly, and deleted right after, went within the grace",
    ),
    Found(
        "mixed",
        31934,
        "a Service that lost its balancer took that of another, because it was told to adopt it",
    ),
    Found(
        "keys",
        15,
        "a manager that froze between two keys of one call added the second after its lease",
    ),
    Found(
        "nodes",
        25,
        "a node that came again under its name got the provider ID of the machine before it, "
        "because the cloud's list was old",
    ),
    Found(
        "mixed",
        20157,
        "a retry that was planned before a later pass began followed that one at once, though "
        "the API server had asked to wait",
    ),
    Found(
        "services",
        233,
        "a Service that went to another class kept its finalizer when the write that takes it "
        "off failed the first time",
    ),
    Found(
        "services",
        49,
        "a Service that went to another class while no manager ran kept its finalizer for ever",
    ),
    Found(
        "mixed",
        30659,
        "a leader was blamed that could not know yet that people had given its lease away, because "
        "they had then deleted the lease, too",
    ),
    Found(
        "mixed",
        30516,
        "a route that the cloud refused was tried every second, because the API server had asked "
        "for a second's patience with something else in the same round",
    ),
    Found(
        "mixed",
        30828,
        "a world counted as quiet (by the judge) while the lease of leader migration was not taken",
    ),
    Found(
        "mixed",
        31568,
        "a world counted as quiet (by the judge) while a Service that asks for the impossible "
        "still said that a quota was used up, and had yet to say what is in its way now",
    ),
    Found(
        "mixed",
        30137,
        "a Service took the balancer of another one that lived, because its user named it",
    ),
    Found(
        "mixed",
        31058,
        "a Service that waited for a former one of its name tried every two seconds to say so",
    ),
    Found(
        "mixed",
        31399,
        "a world counted as quiet while the cloud was at work on a balancer without members",
    ),
    Found(
        "mixed",
        620,
        "a look at SSH keys asked the cloud for the machines, too, right after another caller had "
        "been asked for silence",
    ),
    Found(
        "mixed",
        1517,
        "six nodes that two controllers failed to write to, each at its own pace, were too many "
        "for the judge, who counted both together",
    ),
    Found(
        "nodes",
        5282,
        "a world counted as quiet (by the judge) before a node that no route can lead to said so",
    ),
    Found(
        "cloud",
        5248,
        "a world counted as quiet (by the judge) before the cloud had refused a hopeless route for "
        "the first time, so that its first retries were too many",
    ),
    Found(
        "mixed",
        5051,
        "a quiet world was blamed (by the judge) for the word that a route which leads nowhere "
        "fails no more because requests are lost",
    ),
    Found(
        "mixed",
        5786,
        "a node was initialized while the watch of nodes was interrupted, and kept the condition "
        "that it could not be initialized",
        edition=2,
    ),
)
