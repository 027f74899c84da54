"""An Ethernet switch in this process, between hosts that are network namespaces of this machine.

Each host has a TAP device whose frames are read and written here. A cable has a rate in each direction, the way from
one host to another takes a time, and a cable can be pulled out. The kernel needs nothing for it but ``/dev/net/tun``.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import struct
import threading
import time
from collections import Counter
from contextlib import suppress

TUN = "/dev/net/tun"
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
OFFLOADED = 0x01 | 0x02
"""Checksums and the segments of TCP, which the kernel then leaves to whoever gets the frame: few large frames pass."""
HEADER = 10
"""Bytes before each frame that say how it is to be cut into segments."""
LARGEST = HEADER + 14 + 65_536
BETWEEN = 24
"""Bytes of a cable's time that each segment takes besides: preamble, checksum, gap."""
QUEUE = 0.2
"""Seconds that a frame waits at the most for a cable; what comes then is dropped."""
AT_ONCE = 16
"""Frames that are read from one host before others have their turn."""


class Port:
    """The cable of a host: its TAP device, and until when it is busy in each direction."""

    def __init__(self, name: str, number: int, device: str) -> None:
        self.name, self.number, self.device = name, number, device
        self.file = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self.file, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
        fcntl.ioctl(self.file, TUNSETOFFLOAD, OFFLOADED)
        self.plugged, self.gone = True, False
        self.sent_until = self.received_until = 0.0

    @property
    def mac(self) -> str:
        """The address of its device, which names the port."""
        return f"02:00:00:00:00:{self.number:02x}"


class Switch:
    """Passes frames on; ``rate`` in bits a second, ``latency`` in seconds from one host to another."""

    def __init__(self, rate: float, latency: float) -> None:
        self.rate, self.latency = rate, latency
        self.ports: dict[int, Port] = {}
        self.bytes: Counter[tuple[str, str]] = Counter()
        """On the cables, by the hosts that they went from and to."""
        self.dropped: Counter[str] = Counter()
        """Frames, by the reason."""
        self.seconds = 0.0
        """Processor time that it took."""
        self.stood_still = 0.0
        """The longest time in which nothing passed because this process did not run: connections may have been lost."""
        self._flying: list[tuple[float, int, int, Port, Port, bytes]] = []
        self._number = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._pass_on, name="switch", daemon=True)
        self._awake = os.pipe()

    def __enter__(self) -> Switch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        os.write(self._awake[1], b"x")
        self._thread.join()
        for file in (*self._awake, *(port.file for port in self.ports.values())):
            os.close(file)

    def plug_in(self, name: str, device: str) -> Port:
        """Make a device for a host; whoever gets it brings it into the namespace."""
        number = len(self.ports) + 1
        port = Port(name, number, device)
        self.ports = {**self.ports, number: port}
        os.write(self._awake[1], b"x")
        return port

    def cable(self, name: str, plugged: bool) -> None:
        """Pull out the cable of a host, or put it back."""
        for port in self.ports.values():
            if port.name == name:
                port.plugged = plugged

    def _pass_on(self) -> None:
        until = time.monotonic()
        while not self._over.is_set():
            self.stood_still = max(self.stood_still, time.monotonic() - until)
            wait = max(0.0, self._flying[0][0] - time.monotonic()) if self._flying else 1.0
            until = time.monotonic() + wait
            ports = {port.file: port for port in self.ports.values() if not port.gone}
            ready, _, _ = select.select([*ports, self._awake[0]], [], [], wait)
            for file in ready:
                if file == self._awake[0]:
                    os.read(file, 64)
                else:
                    self._read(ports[file])
            self._deliver()
            self.seconds = time.thread_time()

    def _read(self, port: Port) -> None:
        """Take what a host sends."""
        for _ in range(AT_ONCE):
            try:
                frame = os.read(port.file, LARGEST)
            except BlockingIOError:
                return
            except OSError:  # (its host has been taken away, and the device with it)
                port.gone = True
                return
            to = frame[HEADER : HEADER + 6]
            others = [other for other in self.ports.values() if other is not port]
            for other in others if to[0] & 1 else [other for other in others if other.number == to[5]]:
                self._send(port, other, frame)

    def _send(self, port: Port, other: Port, frame: bytes) -> None:
        """Let a frame occupy both cables, and arrive."""
        if not (port.plugged and other.plugged):
            self.dropped["no cable"] += 1
            return
        now, size = time.monotonic(), on_the_cable(frame)
        start = max(now, port.sent_until, other.received_until)
        if start - now > QUEUE:
            self.dropped["full"] += 1
            return
        port.sent_until = max(now, port.sent_until) + 8 * size / self.rate
        other.received_until = until = start + 8 * size / self.rate
        self._number += 1
        heapq.heappush(self._flying, (until + self.latency, self._number, size, port, other, frame))

    def _deliver(self) -> None:
        """Hand over what has arrived."""
        now = time.monotonic()
        while self._flying and self._flying[0][0] <= now:
            _, _, size, port, other, frame = heapq.heappop(self._flying)
            if not (port.plugged and other.plugged):
                self.dropped["no cable"] += 1
                continue
            self.bytes[port.name, other.name] += size
            with suppress(OSError):  # (a host that has just been taken away)
                os.write(other.file, frame)


def on_the_cable(frame: bytes) -> int:
    """Bytes that a frame takes of a cable, cut into segments.

    >>> on_the_cable(struct.pack("<BBHHHH", 0, 1, 54, 1000, 0, 0) + bytes(54 + 2500))
    2734
    """
    length = len(frame) - HEADER
    _, kind, head, segment, _, _ = struct.unpack_from("<BBHHHH", frame)
    segments = -(-(length - head) // segment) if kind and segment else 1
    return int(length + (segments - 1) * head + segments * BETWEEN)
