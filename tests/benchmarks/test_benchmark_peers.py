"""Peers: installed once for each pin; one that cannot be had says why."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import peers, servers
from benchmarks.peers import PEERS, Peer, Setting, Unavailable, install
from benchmarks.processes import CommandFailed

PEER = Peer(name="some", home="some", requirement="some==1")


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would have been run to install; the cache is empty."""
    run: list[list[str]] = []

    def finish(command: list[str], _: float) -> str:
        run.append(command)
        return ""

    monkeypatch.setattr(peers, "CACHE", tmp_path)
    monkeypatch.setattr(peers, "finish", finish)
    monkeypatch.setattr("shutil.which", lambda _: "npm")
    return run


def test_a_peer_is_installed_once_and_again_when_its_pin_changes(commands: list[list[str]]) -> None:
    install(PEER)
    first = len(commands)
    install(PEER)
    assert len(commands) == first
    install(replace(PEER, requirement="some==2"))
    assert commands[-1][-1] == "some==2"


def test_each_peer_has_an_environment_of_its_own(commands: list[list[str]], tmp_path: Path) -> None:
    assert install(PEER) == tmp_path / "some"
    assert commands[-1][0] == str(tmp_path / "some" / "bin" / "pip")


def test_npm_is_told_which_versions_to_hold(commands: list[list[str]]) -> None:
    folder = install(replace(PEER, npm=True, overrides={"dependency": "3"}))
    assert commands[0][:2] == ["npm", "install"]
    assert json.loads((folder / "package.json").read_text()) == {"overrides": {"dependency": "3"}}


def test_an_install_that_fails_says_why_and_is_tried_again(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(command: list[str], limit_s: float) -> str:
        raise CommandFailed(f"pip did not end within {limit_s:g} s")

    with monkeypatch.context() as patch:
        patch.setattr(peers, "finish", failing)
        with pytest.raises(Unavailable, match="does not install: pip did not end within 5 s"):
            install(PEER, limit_s=5)
    install(PEER)
    assert commands


def test_a_quick_run_installs_nothing(commands: list[list[str]]) -> None:
    with pytest.raises(Unavailable, match="not installed yet"):
        install(PEER, may_install=False)
    assert commands == []


def test_without_npm_its_peers_are_unavailable(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(Unavailable, match="npm is not installed"):
        install(replace(PEER, npm=True))


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.launch], ids=lambda peer: peer.name)
def test_every_peer_is_pointed_at_the_upstream_and_kept_to_loopback(peer: Peer, tmp_path: Path) -> None:
    assert peer.launch is not None
    setting = Setting(installed=tmp_path, folder=tmp_path, upstream="http://127.0.0.1:9", key="sk-test")
    launch = peer.launch(setting)
    written = [path.read_text() for path in tmp_path.iterdir()]
    told = "".join([*launch.command, *launch.headers.values(), *written])
    assert "http://127.0.0.1:9" in told
    assert launch.url_file or launch.url.startswith("http://127.0.0.1:")


def test_a_peer_without_a_package_gives_its_reason(tmp_path: Path) -> None:
    [peer] = [peer for peer in PEERS if peer.launch is None]
    with ExitStack() as stack, pytest.raises(Unavailable, match="no package of it"):
        servers.start(stack, peer, tmp_path, upstream="", key="")


def test_a_server_that_ends_at_once_gives_its_last_line(tmp_path: Path) -> None:
    def launch(_: Setting) -> peers.Launch:
        return peers.Launch(command=["sh", "-c", "echo no luck"], url="", ready_url="http://127.0.0.1:9/")

    peer = Peer(name="unlucky", launch=launch)
    with ExitStack() as stack, pytest.raises(Unavailable, match="does not start: no luck"):
        servers.start(stack, peer, tmp_path, upstream="", key="")
