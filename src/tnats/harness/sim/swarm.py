"""Draws the faults of a seed: which kinds at all, how many, against whom, when, how long.

Swarm testing (Groce et al., "Swarm Testing", ISSTA 2012): each kind is left out of half of the seeds, and what is in
comes with an intensity of its own. A seed in which everything goes wrong at once hides bugs that need peace in some
places.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from tnats.harness.faults import AfterAcks, Anchor, At, AtBarrier, BeforeCall, Fault
from tnats.limits import MILLISECOND_NS, SECOND_NS
from tnats.records import frozen
from tnats.runtime.sim.disk_image import CrashPolicy

NETWORK_KINDS = (
    "N_PART",
    "N_ASYM",
    "N_REJECT",
    "N_DELAY",
    "N_SLOW",
    "N_RESET",
    "N_DROPCONN",
    "N_HALFOPEN",
    "N_CLOG",
    "N_CHUNK",
)
"""What may happen between the machines of any drill."""
STARTING = "broker.write_at_once"
"""A place in the server's code that each start passes: a death there is one in the middle of a start."""
CALLS = ("sync", "sync", "write", "rename", "create", "sync_dir", "unlink")
FAILING_CALLS = {"D_FSYNC_EIO": "sync", "D_WRITE_EIO": "write"}
SUDDEN_KINDS = ("D_POWER", "P_KILL", *FAILING_CALLS)
"""Deaths and failing calls: when they come makes all the difference."""
INTENSITIES = (0.2, 1.0, 4.0)
"""Calm, normal, storm: faults of a kind to be expected in a run."""
FAULTS_MAX = 16
LASTS_MIN_NS, LASTS_MEAN_NS, LASTS_MAX_NS = 50 * MILLISECOND_NS, 1500 * MILLISECOND_NS, 10 * SECOND_NS

Parameters = Mapping[str, int | str]


@frozen
class Scene:
    """What there is to trouble."""

    clients: Sequence[str]
    servers: Sequence[str]
    duration_ns: int
    files: Sequence[str] = ("any",)


def milliseconds(duration_ns: float) -> int:
    """Rounded, so that the text form stays short."""
    return max(1, round(duration_ns / MILLISECOND_NS)) * MILLISECOND_NS


def lasts(rng: random.Random) -> int:
    """How long something goes on: mostly short, now and then very long."""
    return milliseconds(min(LASTS_MAX_NS, LASTS_MIN_NS + rng.expovariate(1 / LASTS_MEAN_NS)))


def some_nodes(rng: random.Random, scene: Scene) -> str:
    """Some clients, or a server from all of them."""
    if not scene.clients or rng.random() < 0.25:
        return rng.choice(scene.servers)
    count = rng.choice((1, 1, 2, max(1, len(scene.clients) // 2)))
    return ",".join(sorted(rng.sample(list(scene.clients), min(count, len(scene.clients)))))


def one_node(rng: random.Random, scene: Scene) -> str:
    """A server, or now and then a client."""
    if scene.clients and rng.random() < 0.3:
        return rng.choice(scene.clients)
    return rng.choice(scene.servers)


def on_some(rng: random.Random, scene: Scene) -> dict[str, int | str]:
    return {"targets": some_nodes(rng, scene), "for_ns": lasts(rng)}


def on_one(rng: random.Random, scene: Scene) -> dict[str, int | str]:
    return {"targets": one_node(rng, scene), "for_ns": lasts(rng)}


def on_server(rng: random.Random, scene: Scene) -> dict[str, int | str]:
    return {"targets": rng.choice(scene.servers), "for_ns": lasts(rng)}


def down(rng: random.Random, scene: Scene) -> dict[str, int | str]:
    return {"targets": one_node(rng, scene), "down_ns": lasts(rng)}


def server_down(rng: random.Random, scene: Scene) -> dict[str, int | str]:
    return {"targets": rng.choice(scene.servers), "down_ns": lasts(rng)}


def files(rng: random.Random, scene: Scene) -> str:
    return rng.choice(scene.files)


def far(rng: random.Random) -> int:
    """A clock error of 11 ms to 288 s, all magnitudes alike (Jepsen's bump)."""
    return milliseconds(1.5 ** rng.uniform(6, 31) * MILLISECOND_NS)


def way(rng: random.Random) -> str:
    return rng.choice(("forth", "back"))


DRAWS: Mapping[str, Callable[[random.Random, Scene], Parameters]] = {
    "N_PART": on_some,
    "N_ASYM": lambda rng, scene: {**on_some(rng, scene), "way": rng.choice(("in", "out"))},
    "N_REJECT": on_some,
    "N_DELAY": lambda rng, scene: {
        **on_some(rng, scene),
        "added_ns": milliseconds(rng.choice((1, 30, 300)) * MILLISECOND_NS * rng.random()),
        "jitter_ns": milliseconds(100 * MILLISECOND_NS * rng.random()),
    },
    "N_SLOW": lambda rng, scene: {**on_some(rng, scene), "rate_count": rng.choice((1_000, 10_000, 100_000, 1_000_000))},
    "N_RESET": lambda rng, scene: {**on_some(rng, scene), "permille_count": rng.choice((10, 50, 200))},
    "N_DROPCONN": lambda rng, scene: {"targets": some_nodes(rng, scene)},
    "N_HALFOPEN": on_some,
    "N_CLOG": on_some,
    "N_FLOOD": lambda rng, scene: {**on_some(rng, scene), "rate_count": rng.choice((5_000, 50_000))},
    "N_ADDR": down,
    "N_CHUNK": lambda rng, scene: {**on_some(rng, scene), "permille_count": rng.choice((300, 900, 990))},
    "P_KILL": down,
    "P_TERM": server_down,
    "P_CRASHLOOP": lambda rng, scene: {
        "targets": rng.choice(scene.servers),
        "times_count": rng.randint(2, 6),
        "up_ns": milliseconds(rng.choice((1, 5, 50, 500)) * MILLISECOND_NS * rng.uniform(0.5, 2)),
        "down_ns": milliseconds(100 * MILLISECOND_NS * rng.random()),
    },
    "P_MEM": on_server,
    "P_PAUSE": on_one,
    "P_SLOWCPU": lambda rng, scene: {**on_one(rng, scene), "step_ns": rng.choice((100_000, 1_000_000, 10_000_000))},
    "T_JUMP": lambda rng, scene: {"targets": one_node(rng, scene), "by_ns": far(rng), "way": way(rng)},
    "T_DRIFT": lambda rng, scene: {**on_one(rng, scene), "ppm_count": rng.choice((10, 200, 5000)), "way": way(rng)},
    "T_STROBE": lambda rng, scene: {
        **on_one(rng, scene),
        "by_ns": far(rng),
        "period_ns": milliseconds(rng.choice((10, 100, 1000)) * MILLISECOND_NS * rng.uniform(0.5, 1)),
    },
    "D_POWER": lambda rng, scene: {
        **server_down(rng, scene),
        "policy": rng.choice([policy.value for policy in CrashPolicy]),
    },
    "D_FSYNC_EIO": lambda rng, scene: {
        **on_server(rng, scene),
        "files": files(rng, scene),
        "variant": rng.choice(("once", "sticky", "sticky", "sticky")),
        "times_count": rng.choice((0, 1, 3)),
    },
    "D_LYING": lambda rng, scene: {**on_server(rng, scene), "files": files(rng, scene)},
    "D_WRITE_EIO": lambda rng, scene: {**on_server(rng, scene), "files": files(rng, scene), "times_count": 1},
    "D_READ_EIO": lambda rng, scene: {**on_server(rng, scene), "files": files(rng, scene), "times_count": 2},
    "D_ENOSPC": lambda rng, scene: {**on_server(rng, scene), "free_count": rng.choice((0, 100, 5_000))},
    "D_EROFS": on_server,
    "D_EMFILE": on_server,
    "D_EACCES": on_server,
    "D_BITFLIP": lambda rng, scene: {
        **server_down(rng, scene),
        "files": files(rng, scene),
        "bits_count": rng.choice((1, 2, 20)),
    },
    "D_TRUNC": lambda rng, scene: {**server_down(rng, scene), "files": files(rng, scene)},
    "D_ZERO": lambda rng, scene: {**server_down(rng, scene), "files": files(rng, scene)},
    "D_STALE": lambda rng, scene: {**on_server(rng, scene), "files": files(rng, scene), "down_ns": lasts(rng)},
    "D_MISDIRECT": lambda rng, scene: {**on_server(rng, scene), "files": files(rng, scene)},
    "D_SWAPFILE": lambda rng, scene: {**server_down(rng, scene), "files": files(rng, scene)},
    "D_DUPFILE": lambda rng, scene: {
        **server_down(rng, scene),
        "files": files(rng, scene),
        "variant": rng.choice(("leftover", "double")),
    },
    "D_WIPE": server_down,
    "D_ROLLBACK": lambda rng, scene: {**on_server(rng, scene), "down_ns": lasts(rng)},
    "D_SLOW": lambda rng, scene: {**on_server(rng, scene), "factor_count": rng.choice((10, 100, 1000))},
    "O_RELOAD": lambda rng, scene: {"targets": rng.choice(scene.servers)},
    "O_LAMEDUCK": server_down,
}
"""Parameters of one fault of each kind."""


def before_call(rng: random.Random, kind: str, calls: Sequence[str] = CALLS) -> BeforeCall:
    """A disk call: of the kind that is to fail, or one of `calls`, in the middle of which the process dies."""
    if kind in FAILING_CALLS:
        return BeforeCall(FAILING_CALLS[kind], rng.randint(1, 15), "*")
    call = rng.choice(calls)
    return BeforeCall(call, rng.randint(1, 30 if call in ("sync", "write") else 6), "*")


def telling_anchor(rng: random.Random, kind: str) -> Anchor | None:
    """Deaths and failing calls come at moments that matter: inside a disk call, after an acknowledgement."""
    if kind not in SUDDEN_KINDS or rng.random() < 0.3:
        return None
    if rng.random() < 0.4:
        return AfterAcks(rng.randint(1, 40))
    if kind != "P_KILL":
        return before_call(rng, kind)
    if rng.random() < 0.15:
        return AtBarrier(STARTING, rng.randint(1, 3))
    # What a killed process has written stays: most telling is what was written, and not acknowledged yet.
    return before_call(rng, kind, ("sync", "sync", "sync", "write"))


def draw_faults(
    rng: random.Random,
    scene: Scene,
    kinds: Sequence[str],
    anchors: Callable[[random.Random, str], Anchor | None] = lambda rng, kind: None,
    *,
    least: int = 0,
) -> tuple[Fault, ...]:
    """The faults of one seed, by time.

    `anchors` may give one an anchor on an event in place of a time; of a kind that is in at all there are at least
    `least`.
    """
    found: list[Fault] = []
    for kind in kinds:
        intensity = rng.choice(INTENSITIES)
        if rng.random() < 0.5:
            continue
        count = max(least, int(rng.expovariate(1 / intensity) + 0.5))
        for _ in range(count):
            time_ns = milliseconds(rng.random() * scene.duration_ns)
            anchor = anchors(rng, kind) or At(time_ns)
            parameters = DRAWS[kind](rng, scene)
            if isinstance(anchor, BeforeCall) and parameters["targets"] in scene.clients:  # which call no disk
                parameters = {**parameters, "targets": scene.servers[0]}
            found.append(Fault(anchor, kind, parameters))
    rng.shuffle(found)
    del found[FAULTS_MAX:]
    return tuple(sorted(found, key=lambda fault: fault.anchor.time_ns if isinstance(fault.anchor, At) else -1))
