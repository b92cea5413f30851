"""What an initiator in user space that is not ours does with a served drive.

    python3 pynvmeof.py CHECK ADDRESS PORT NQN FOLDER

CHECK is one of the functions below that take a `Target`. They find the package `nvmeof_client` on PYTHONPATH, leave
files in FOLDER for the test that started them, and end with an exception where something is not as it should be.
"""

import contextlib
import random
import sys
import uuid
from pathlib import Path

# The client makes up a host identifier for each Connect, but that of an I/O queue has to be the admin queue's (Base,
# "Connect Command - Data"). So it gets the same one whenever it asks.
HOST = uuid.UUID("6b0a24c2-55f1-4d3a-9c8e-0f6d7a3b9e11")
uuid.uuid4 = lambda: HOST

from nvmeof_client import CommandError, NVMeoFClient, NVMeoFError  # noqa: E402

BLOCK = 4096
CAPACITY_BLOCKS = (64 << 20) // BLOCK
TRANSFER_BLOCKS_MAX = (1 << 20) // BLOCK

# A hang is an error after so many seconds; nothing else takes nearly as long.
HANG_SECONDS = 60.0

# Status codes with their type above them, as the client gives them.
INVALID_OPCODE = 0x001
INVALID_FIELD = 0x002
INVALID_NAMESPACE = 0x00B
LBA_OUT_OF_RANGE = 0x080
INVALID_LOG_PAGE = 0x109


class Target:
    """A served drive, and where to leave files."""

    def __init__(self, address, port, nqn, folder):
        self.address, self.port, self.nqn, self.folder = address, int(port), nqn, Path(folder)

    @contextlib.contextmanager
    def client(self, nqn=None, **options):
        """A client that is connected to the drive, or to the subsystem `nqn`."""
        client = NVMeoFClient(self.address, nqn or self.nqn, port=self.port, timeout=HANG_SECONDS, **options)
        client.connect()
        try:
            yield client
        finally:
            client.disconnect()


def equal(what, found, expected):
    if found != expected:
        raise AssertionError(f"{what}: {found!r} should be {expected!r}")


def refused(what, status, call, *arguments):
    """Expects that a command ends with this status."""
    try:
        call(*arguments)
    except CommandError as error:
        equal(f"the status of {what}", error.status_code, status)
    else:
        raise AssertionError(f"{what} should have been refused with status {status:#x}")


def pattern(seed, blocks):
    return random.Random(seed).randbytes(blocks * BLOCK)


def identify(target):
    """It finds the subsystem, and sees what the drive is."""
    with target.client("nqn.2014-08.org.nvmexpress.discovery") as client:
        equal("a discovery controller", client.is_discovery_connection, True)
        entries = client.get_discovery_entries()
    equal("the number of records", len(entries), 1)
    entry = entries[0]
    equal("the subsystem", (entry.subsystem_nqn, entry.is_nvme_subsystem), (target.nqn, True))
    # Padded with spaces, as all ASCII strings of NVMe; the client strips zeroes only.
    place = (entry.transport_type.name, entry.transport_address.strip(), entry.transport_service_id.strip())
    equal("its place", place, ("TCP", target.address, str(target.port)))

    with target.client() as client:
        controller = client.get_controller_info()
        equal("the model", controller.model_number, "OpenFTL")
        equal("the length of the serial number", len(controller.serial_number), 16)
        equal("the version", controller.nvme_version, "2.0.0")
        equal("the longest transfer", 4096 << controller.max_data_transfer_size, TRANSFER_BLOCKS_MAX * BLOCK)
        equal("events of namespaces", controller.oaes_namespace_attribute_notices, True)
        raw = client.identify_controller()
        equal("the subsystem of the controller", raw["subnqn"], target.nqn)
        equal("the capacity", raw["tnvmcap"], (CAPACITY_BLOCKS * BLOCK, 0))
        # Data of commands lie behind the entry, 8 KiB of them.
        equal("the capsule", (raw["ioccsz"] * 16, raw["icdoff"]), (64 + 8192, 0))
        equal("queue entries", client.get_controller_capabilities()["max_queue_entries_supported"], 1024)

        equal("the namespaces", client.list_namespaces(), [1])
        namespace = client.get_namespace_info(1)
        equal("the block size", namespace.logical_block_size, BLOCK)
        equal("the size", (namespace.namespace_size, namespace.namespace_capacity), (CAPACITY_BLOCKS,) * 2)
        equal("a namespace that is not there", client.get_namespace_info(2).namespace_size, 0)


def transfer(target):
    """It writes and reads in the capsule and by R2T, up to the longest transfer, and leaves an image of the drive."""
    image = bytearray(CAPACITY_BLOCKS * BLOCK)
    with target.client() as client:
        lba = 0
        for seed, blocks in enumerate([1, 2, 3, 8, 31, 32, 33, 64, 128, 255, TRANSFER_BLOCKS_MAX]):
            # Each begins in the last block of the one before it.
            data = pattern(seed, blocks)
            client.write_data(1, lba, data)
            image[lba * BLOCK:(lba + blocks) * BLOCK] = data
            equal(f"{blocks} blocks", client.read_data(1, lba, blocks) == data, True)
            lba += blocks - 1 if blocks > 1 else 1
        last = pattern(100, 1)
        client.write_data(1, CAPACITY_BLOCKS - 1, last)
        image[-BLOCK:] = last
        client.flush_namespace(1)
        equal("blocks that nobody wrote", client.read_data(1, CAPACITY_BLOCKS - 3, 2), bytes(2 * BLOCK))

        # The client waits for the end of Write Zeroes on the admin connection. For once, that is the other one.
        admin, client._socket = client._socket, client._io_socket
        try:
            client.write_zeroes(1, 40, 7)
        finally:
            client._socket = admin
        image[40 * BLOCK:47 * BLOCK] = bytes(7 * BLOCK)
        equal("zeroes and their neighbours", client.read_data(1, 39, 9) == image[39 * BLOCK:48 * BLOCK], True)
    (target.folder / "image").write_bytes(image)


def read_back(target):
    """It reads what another initiator wrote."""
    expected = (target.folder / "input").read_bytes()
    with target.client() as client:
        for first in range(0, len(expected) // BLOCK, 100):
            part = expected[first * BLOCK:(first + 100) * BLOCK]
            found = client.read_data(1, 5 + first, len(part) // BLOCK)
            equal(f"the blocks from {first} on", found == part, True)


def wrong(target):
    """What is wrong gets its status, and what follows it is served."""
    with target.client() as client:
        data = pattern(1, 1)
        client.write_data(1, 0, data)
        refused("a read beyond the end", LBA_OUT_OF_RANGE, client.read_data, 1, CAPACITY_BLOCKS, 1)
        refused("a read across the end", LBA_OUT_OF_RANGE, client.read_data, 1, CAPACITY_BLOCKS - 1, 2)
        refused("a write across the end", LBA_OUT_OF_RANGE, client.write_data, 1, CAPACITY_BLOCKS - 1, pattern(2, 2))
        refused("a read that is too long", INVALID_FIELD, client.read_data, 1, 0, TRANSFER_BLOCKS_MAX + 1)
        refused("a flush of an inactive namespace", INVALID_FIELD, client.flush_namespace, 2)
        refused("a flush of a namespace that cannot be", INVALID_NAMESPACE, client.flush_namespace, 65)
        refused("a reservation", INVALID_OPCODE, client.reservation_register, 1, 0, 7)
        refused("an unknown log page", INVALID_LOG_PAGE, client.get_log_page, 0xDD, 512)
        refused("an unknown feature", INVALID_FIELD, client.get_features, 0xDD)
        # The entry of the last one: counted, on the admin queue, with its status.
        entry = client.get_log_page(0x01, 64)
        equal("the queue of the last error", int.from_bytes(entry[8:10], "little"), 0)
        equal("the status of the last error", int.from_bytes(entry[12:14], "little") >> 1 & 0x3FF, INVALID_FIELD)
        equal("the block behind all that", client.read_data(1, 0, 1), data)

        # The client sends Compare to the admin queue, where there is no such command.
        with contextlib.suppress(CommandError):
            client.compare_data(1, 0, data)
        client.send_keep_alive()
        equal("the block behind that", client.read_data(1, 0, 1), data)


def broken(target):
    """A PDU that is none ends its connection, and no other."""
    with target.client() as other:
        data = pattern(3, 4)
        other.write_data(1, 9, data)
        with target.client() as client:
            try:
                # Its header says 8 bytes, where a command has 72.
                client.send_command(0x18)
            except NVMeoFError as error:
                equal("what a PDU that is none is answered with", str(error), "Unexpected PDU type: 3")
            else:
                raise AssertionError("a PDU that is none is taken for a command")
        other.send_keep_alive()
        equal("the other one's blocks", other.read_data(1, 9, 4), data)


def features(target):
    """Features are set and told, hosts are kept alive, logs count."""
    with target.client(kato=30_000) as client:
        equal("the keep-alive timer", client.get_features(0x0F)["result"], 30_000)
        client.send_keep_alive()
        equal("the write cache", client.get_features(0x06)["result"], 1)
        client.set_features(0x06, 0)
        equal("the write cache, turned off", client.get_features(0x06)["result"], 0)
        before = client.get_log_page(0x02, 512)
        for _ in range(3):
            client.write_data(1, 0, pattern(4, TRANSFER_BLOCKS_MAX))
            client.read_data(1, 0, 8)
        after = client.get_log_page(0x02, 512)

        def counted(first):
            number = [int.from_bytes(log[first:first + 16], "little") for log in (before, after)]
            return number[1] - number[0]

        # Thousands of 512 bytes, rounded up; commands.
        equal("data written, to one unit", counted(48) in (6, 7), True)
        equal("reads and writes", (counted(64), counted(80)), (3, 3))
        equal("changed namespaces", client.get_changed_namespace_list(), [])


def events(target):
    """It asks to be told when the drive is too warm, and is told at once where that is so little."""
    with target.client() as client:
        client.enable_async_events(1 << 1)
        client.set_features(0x04, 250)
        client.request_async_events(1)
        told = client.poll_async_events(HANG_SECONDS)
        told = [(event.is_smart_health, event.event_info, event.log_page_id) for event in told]
        equal("the events", told, [(True, 1, 2)])
        equal("the warning", client.get_log_page(0x02, 512)[0], 1 << 1)


def leave_and_return(target):
    """Two clients work at a time, one leaves and comes back, one just goes."""
    hosts = ["nqn.2026-11.test:first", "nqn.2026-11.test:second"]
    gone = NVMeoFClient(target.address, target.nqn, port=target.port, timeout=HANG_SECONDS)
    gone.connect()
    gone.write_data(1, 1000, pattern(10, 32))
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(target.client(host_nqn=host)) for host in hosts)
        identifiers = {client.identify_controller()["cntlid"] for client in (gone, first, second)}
        equal("controllers", len(identifiers), 3)
        for round in range(20):
            first.write_data(1, 64 * round, pattern(round, 32))
            second.write_data(1, 64 * round + 32, pattern(round + 50, 32))
        for round in range(20):
            both = pattern(round, 32) + pattern(round + 50, 32)
            for client in (first, second):
                equal(f"round {round}", client.read_data(1, 64 * round, 64) == both, True)
        # Its sockets are closed with a command under way.
        gone._send_identify_controller_pdu(77)
        gone.disconnect()
        first.disconnect()
        equal("the first one has left", first.is_connected, False)
        first.connect()
        equal("what the second one wrote", first.read_data(1, 32, 32), pattern(50, 32))
        second.send_keep_alive()


CHECKS = {
    check.__name__: check
    for check in (identify, transfer, read_back, wrong, broken, features, events, leave_and_return)
}

if __name__ == "__main__":
    CHECKS[sys.argv[1]](Target(*sys.argv[2:]))
