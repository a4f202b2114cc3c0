"""Values to bytes and back, type-exact, never pickle."""

from agent_run_ledger.codecs.annotations import refused_annotation
from agent_run_ledger.codecs.digesting import DigestCache
from agent_run_ledger.codecs.packing import Packed, element_digest, pack, unpack, unpack_without, value_digest
from agent_run_ledger.codecs.plain import is_plain
from agent_run_ledger.codecs.refusal import NotFinite
from agent_run_ledger.codecs.registry import register_codec
from agent_run_ledger.codecs.rescue import readable
from agent_run_ledger.codecs.tagging import encode, tree
from agent_run_ledger.codecs.untagging import decode

__all__ = [
    "DigestCache",
    "NotFinite",
    "Packed",
    "decode",
    "element_digest",
    "encode",
    "is_plain",
    "pack",
    "readable",
    "refused_annotation",
    "register_codec",
    "tree",
    "unpack",
    "unpack_without",
    "value_digest",
]
