-- Health of a NodePool for Argo CD: progressing until every node is as Git declares.
-- It goes into the ConfigMap argocd-cm under the key
-- resource.customizations.health.karpenter.sh_NodePool.
local hs = {status = "Progressing", message = "Waiting for the controller to look at the NodePool"}
if obj.status == nil or obj.status.conditions == nil then
  return hs
end
local ready, drifted
for _, c in ipairs(obj.status.conditions) do
  if c.type == "Ready" then ready = c end
  if c.type == "NodeClaimsDrifted" then drifted = c end
end
-- A condition of an older generation says nothing of the change that is waited for.
if ready == nil or ready.observedGeneration ~= obj.metadata.generation then
  return hs
end
if ready.status == "False" then
  hs.status = "Degraded"
  hs.message = ready.message
  return hs
end
if ready.status ~= "True" or drifted == nil or drifted.observedGeneration ~= obj.metadata.generation then
  return hs
end
hs.message = drifted.message
if drifted.status == "True" then
  return hs
end
local nodes = obj.status.nodes or 0
if obj.spec.replicas ~= nil and nodes < obj.spec.replicas then
  hs.message = nodes .. " of " .. obj.spec.replicas .. " nodes exist"
  return hs
end
hs.status = "Healthy"
return hs
