#!/bin/bash
[ "$(reverse abc)" = cba ] && [ "$(reverse "a b")" = "b a" ] && [ "$(reverse "")" = "" ]
