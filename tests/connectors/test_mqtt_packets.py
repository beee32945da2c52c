"""The packet that a message comes in, taken apart."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors.mqtt.client import IncomingMessage, decoded_publish


def encoded_length(value: int) -> bytes:
    """Write a number as MQTT does: seven bits a byte, the lowest first."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


@given(
    topic=st.binary(min_size=1, max_size=300),
    payload=st.binary(max_size=300),
    qos=st.sampled_from([0, 1, 2]),
    packet_id=st.integers(1, 65_535),
    again=st.booleans(),
    retained=st.booleans(),
    properties=st.none() | st.binary(max_size=20_000),
)
def test_a_message_is_what_was_put_into_its_packet(
    topic: bytes, payload: bytes, qos: int, packet_id: int, again: bool, retained: bool, properties: bytes | None
) -> None:
    packet = struct.pack("!H", len(topic)) + topic
    packet += struct.pack("!H", packet_id) if qos else b""
    packet += b"" if properties is None else encoded_length(len(properties)) + properties
    first = 0x30 | again << 3 | qos << 1 | retained
    assert decoded_publish(first, packet + payload, has_properties=properties is not None) == IncomingMessage(
        topic, payload, qos, packet_id if qos else 0, again, retained
    )


@pytest.mark.parametrize(
    ("first", "packet"),
    [
        (0x30, b""),
        (0x30, b"\x00"),
        (0x30, b"\x00\x00\x00"),  # no topic
        (0x30, b"\x00\x05abc"),  # a topic that is not all there
        (0x32, b"\x00\x01a"),  # no packet id
        (0x32, b"\x00\x01a\x00\x00\x00"),  # packet id 0
        (0x36, b"\x00\x01a\x00\x01\x00"),  # QoS 3
        (0x30, b"\x00\x01a"),  # no properties
        (0x30, b"\x00\x01a\x05abc"),  # properties that are not all there
        (0x30, b"\x00\x01a\x80\x80\x80\x80\x01"),  # a length that does not end
    ],
)
def test_a_packet_that_is_broken_is_no_message(first: int, packet: bytes) -> None:
    assert decoded_publish(first, packet, has_properties=True) is None


@given(first=st.integers(0x30, 0x3F), packet=st.binary(max_size=40), has_properties=st.booleans())
def test_garbage_is_a_message_or_none(first: int, packet: bytes, has_properties: bool) -> None:
    found = decoded_publish(first, packet, has_properties=has_properties)
    assert found is None or (found.topic in packet and packet.endswith(found.payload))
