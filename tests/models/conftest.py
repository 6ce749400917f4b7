import pytest

from tests.chat_server import Server


@pytest.fixture
def server():
    made = Server()
    yield made
    made.shutdown()
    made.server_close()
