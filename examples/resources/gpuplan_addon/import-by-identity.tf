import {
  to = gpuplan_addon.koordinator
  identity = {
    name = "ack-koordinator"
  }
}
